//! The frames of a pack that were decoded last, for all threads that need them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};

use brisk_image::Result;
use brisk_image::hot_pack::{FrameReader, HotPack};

/// Decoded frames.
///
/// A program that asks for pages as fast as they are stored asks for those of a few frames around the one that is stored, and
/// each frame has pages that the program asked for and pages that are still to be stored. So whoever needs a frame first decodes
/// it for all others.
pub(super) struct DecodedFrames {
    pack: HotPack,
    /// How many are kept, unless more are in use.
    most: usize,
    /// The last used frame is last.
    kept: Mutex<Vec<Arc<DecodedFrame>>>,
}

/// A frame that a thread has decoded, or is about to decode.
pub(super) struct DecodedFrame {
    number: usize,
    reader: RwLock<FrameReader>,
}

impl DecodedFrames {
    /// Frames of `pack`, of which at most `most` are kept.
    pub(super) fn of(pack: &HotPack, most: usize) -> Self {
        Self {
            pack: pack.clone(),
            most,
            kept: Mutex::default(),
        }
    }

    /// The frame with this number, decoded. If another thread is decoding it, this waits. `stored`: its stored bytes, if the
    /// caller has them.
    pub(super) fn get(&self, number: usize, stored: Option<&[u8]>) -> Result<Arc<DecodedFrame>> {
        let frame = self.kept(number);
        if frame.read().held() != Some(number) {
            let mut reader = frame.reader.write().unwrap_or_else(PoisonError::into_inner);
            // Another thread may have decoded it meanwhile.
            if reader.held() != Some(number) {
                match stored {
                    Some(stored) => reader.decode(number, stored).map(drop)?,
                    None => reader.read(number).map(drop)?,
                }
            }
        }
        Ok(frame)
    }

    /// Keeps none of them. Those in use live on until they are no longer.
    pub(super) fn clear(&self) {
        self.lock().clear();
    }

    /// The frame with this number, decoded or not.
    fn kept(&self, number: usize) -> Arc<DecodedFrame> {
        let mut kept = self.lock();
        let frame = match kept.iter().position(|frame| frame.number == number) {
            Some(i) => kept.remove(i),
            None => Arc::new(DecodedFrame {
                number,
                reader: RwLock::new(self.reader(&mut kept)),
            }),
        };
        kept.push(Arc::clone(&frame));
        frame
    }

    /// A reader whose frame nobody uses, or a new one.
    fn reader(&self, kept: &mut Vec<Arc<DecodedFrame>>) -> FrameReader {
        let mut reader = None;
        while kept.len() >= self.most
            // Under the lock, nobody begins to use one.
            && let Some(i) = kept.iter().position(|frame| Arc::strong_count(frame) == 1)
        {
            let frame = Arc::into_inner(kept.remove(i));
            reader = frame.map(|frame| {
                let reader = frame.reader.into_inner();
                reader.unwrap_or_else(PoisonError::into_inner)
            });
        }
        reader.unwrap_or_else(|| self.pack.frame_reader())
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Arc<DecodedFrame>>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl DecodedFrame {
    /// Its reader, which holds it.
    pub(super) fn read(&self) -> RwLockReadGuard<'_, FrameReader> {
        self.reader.read().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::super::pack_file::tests::pack_in_a_file;
    use super::*;

    const MOST: usize = 3;

    /// Frames of a pack that has more than four, and its own reader to compare with.
    fn frames() -> (DecodedFrames, FrameReader) {
        let (pack, _) = pack_in_a_file();
        assert!(pack.frame_count() > MOST + 1, "{}", pack.frame_count());
        (DecodedFrames::of(&pack, MOST), pack.frame_reader())
    }

    fn bytes(reader: &FrameReader) -> Vec<u8> {
        let pieces = reader.held_pieces().expect("it was decoded");
        pieces.flat_map(|(_, piece)| piece.to_vec()).collect()
    }

    fn numbers(frames: &DecodedFrames) -> Vec<usize> {
        frames.lock().iter().map(|frame| frame.number).collect()
    }

    #[test]
    fn each_thread_gets_the_frame_that_one_of_them_has_decoded() {
        let (frames, mut alone) = frames();
        for number in [0, 1, 0, 4, 2] {
            let got = thread::scope(|scope| {
                let get = || frames.get(number, None).expect("sound");
                let threads: Vec<_> = (0..4).map(|_| scope.spawn(get)).collect();
                let got = threads.into_iter().map(|t| t.join().expect("it returns"));
                got.collect::<Vec<_>>()
            });
            assert!(got.iter().all(|frame| Arc::ptr_eq(frame, &got[0])));
            alone.read(number).map(drop).expect("sound");
            assert_eq!(bytes(&got[0].read()), bytes(&alone), "{number}");
        }
    }

    #[test]
    fn the_last_ones_are_kept_and_those_in_use() {
        let (frames, mut alone) = frames();
        let get = |number| frames.get(number, None).expect("sound");
        for number in [0, 1, 2, 0, 3] {
            get(number);
        }
        assert_eq!(numbers(&frames), [2, 0, 3]);

        let used: Vec<_> = [0, 1, 2, 3].map(get).into();
        assert_eq!(numbers(&frames), [0, 1, 2, 3]);
        for (number, frame) in used.iter().enumerate() {
            alone.read(number).map(drop).expect("sound");
            assert_eq!(bytes(&frame.read()), bytes(&alone), "{number}");
        }
        drop(used);
        let used = get(4);
        assert_eq!(numbers(&frames), [2, 3, 4]);
        frames.clear();
        assert_eq!(numbers(&frames), [0; 0]);
        alone.read(4).map(drop).expect("sound");
        assert_eq!(bytes(&used.read()), bytes(&alone));
    }

    #[test]
    fn what_cannot_be_decoded_fails_for_each_and_then_is_decoded() {
        let (frames, mut alone) = frames();
        let pack = frames.pack.clone();
        let len = pack.frame(1).expect("one of them").stored;
        let other = vec![0; (len.end - len.start) as usize];
        for _ in 0..2 {
            let failed = frames.get(1, Some(&other)).map(drop);
            assert!(failed.is_err());
        }
        assert!(frames.kept(1).read().held_pieces().is_none());
        alone.read(1).map(drop).expect("sound");
        let got = frames.get(1, None).expect("sound");
        assert_eq!(bytes(&got.read()), bytes(&alone));
    }
}
