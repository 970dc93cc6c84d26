//! The frames of a pack that were decoded last, for all threads that need them.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use brisk_image::Result;
use brisk_image::hot_pack::{FrameReader, HotPack};
use brisk_image::profile::PageRange;

/// How many bytes of decoded frames are kept while a fill runs, if no more are in use: 16 of the frames that brisk makes in lz4,
/// and one for each thread of a fill of those in zstd.
const KEPT: usize = 2 << 20;

/// Decoded frames.
///
/// A program that asks for pages as fast as they are stored asks for those of a few frames around the one that is stored, and
/// each frame has pages that the program asked for and pages that are still to be stored. So the first thread that needs a frame
/// decodes it for all.
///
/// 1. No lock is held while a frame is used: a thread that stores its pages waits for answers, and these may need the same frame.
pub(super) struct DecodedFrames {
    pack: HotPack,
    /// How many are kept. More are kept if they are in use, until another frame is needed.
    most: AtomicUsize,
    /// The last used frame is last.
    kept: Mutex<Vec<Arc<DecodedFrame>>>,
}

/// A frame that a thread has decoded, or is about to decode.
pub(super) struct DecodedFrame {
    number: usize,
    /// None once it is decoded.
    decoder: Mutex<Option<FrameReader>>,
    /// Holds the frame.
    decoded: OnceLock<FrameReader>,
}

impl DecodedFrames {
    pub(super) fn of(pack: &HotPack) -> Self {
        Self {
            pack: pack.clone(),
            most: AtomicUsize::new(1),
            kept: Mutex::default(),
        }
    }

    /// Keeps as many as a fill needs, in place of one.
    pub(super) fn keep_many(&self) {
        let frames = (0..self.pack.frame_count()).filter_map(|number| self.pack.frame(number));
        let largest = frames.map(|frame| frame.len).max().unwrap_or(KEPT);
        self.most.store(KEPT / largest.max(1), Ordering::Relaxed);
    }

    /// Keeps one, because few frames are needed after a fill.
    pub(super) fn keep_one(&self) {
        self.most.store(1, Ordering::Relaxed);
        self.lock().clear();
    }

    /// The frame with this number, decoded. If another thread is decoding it, this waits. `stored`: its stored bytes, if the
    /// caller has them.
    pub(super) fn get(&self, number: usize, stored: Option<&[u8]>) -> Result<Arc<DecodedFrame>> {
        let frame = self.kept(number);
        if frame.decoded.get().is_none() {
            let mut decoder = frame.decoder.lock().unwrap_or_else(PoisonError::into_inner);
            // None if another thread has decoded it meanwhile.
            if let Some(reader) = &mut *decoder {
                match stored {
                    Some(stored) => reader.decode(number, stored).map(drop)?,
                    None => reader.read(number).map(drop)?,
                }
                if let Some(reader) = decoder.take() {
                    // It is set once, under the lock.
                    frame.decoded.set(reader).ok();
                }
            }
        }
        Ok(frame)
    }

    /// The frame with this number, decoded or not.
    fn kept(&self, number: usize) -> Arc<DecodedFrame> {
        let mut kept = self.lock();
        let frame = match kept.iter().position(|frame| frame.number == number) {
            Some(i) => kept.remove(i),
            None => Arc::new(DecodedFrame {
                number,
                decoder: Mutex::new(Some(self.reader(&mut kept))),
                decoded: OnceLock::new(),
            }),
        };
        kept.push(Arc::clone(&frame));
        frame
    }

    /// A reader whose frame nobody uses, or a new one.
    fn reader(&self, kept: &mut Vec<Arc<DecodedFrame>>) -> FrameReader {
        let mut reader = None;
        while kept.len() >= self.most.load(Ordering::Relaxed)
            // Under the lock, nobody begins to use one.
            && let Some(i) = kept.iter().position(|frame| Arc::strong_count(frame) == 1)
        {
            reader = Arc::into_inner(kept.remove(i)).and_then(DecodedFrame::into_reader);
        }
        reader.unwrap_or_else(|| self.pack.frame_reader())
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Arc<DecodedFrame>>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl DecodedFrame {
    /// Its ranges in order, each with its bytes.
    pub(super) fn pieces(&self) -> Option<impl Iterator<Item = (PageRange, &[u8])>> {
        self.decoded.get()?.held()
    }

    fn into_reader(self) -> Option<FrameReader> {
        let undecoded = self.decoder.into_inner();
        self.decoded
            .into_inner()
            .or_else(|| undecoded.unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::mpsc::channel;
    use std::thread;
    use std::time::Duration;

    use super::super::pack_file::tests::pack_in_a_file;
    use super::*;

    const MOST: usize = 3;

    /// How long a test waits for what takes milliseconds.
    const PATIENCE: Duration = Duration::from_secs(60);

    /// Frames of a pack that has more than four, and its own reader to compare with.
    fn frames() -> (DecodedFrames, FrameReader) {
        let (pack, _) = pack_in_a_file();
        assert!(pack.frame_count() > MOST + 1, "{}", pack.frame_count());
        let frames = DecodedFrames::of(&pack);
        frames.most.store(MOST, Ordering::Relaxed);
        (frames, pack.frame_reader())
    }

    fn bytes(frame: &DecodedFrame) -> Vec<u8> {
        let pieces = frame.pieces().expect("it was decoded");
        pieces.flat_map(|(_, piece)| piece.to_vec()).collect()
    }

    fn read(reader: &mut FrameReader, number: usize) -> Vec<u8> {
        let pieces = reader.read(number).expect("sound");
        pieces.flat_map(|(_, piece)| piece.to_vec()).collect()
    }

    fn numbers(frames: &DecodedFrames) -> Vec<usize> {
        frames.lock().iter().map(|frame| frame.number).collect()
    }

    #[test]
    fn threads_share_a_frame_and_none_waits_until_another_has_used_it() {
        const THREADS: usize = 4;
        let (frames, mut alone) = frames();
        let count = frames.pack.frame_count();
        let shared = Arc::new((frames, Barrier::new(THREADS)));
        let (send, receive) = channel();
        for _ in 0..THREADS {
            let (shared, send) = (Arc::clone(&shared), send.clone());
            // Nobody joins it, because it may wait for ever.
            thread::spawn(move || {
                let (frames, together) = &*shared;
                let got = (0..count).map(|number| {
                    together.wait();
                    let frame = frames.get(number, None).expect("sound");
                    let pieces = frame.pieces().expect("it was decoded");
                    // All use it at once.
                    together.wait();
                    let bytes: Vec<u8> = pieces.flat_map(|(_, piece)| piece.to_vec()).collect();
                    (Arc::as_ptr(&frame).addr(), bytes)
                });
                send.send(got.collect::<Vec<_>>()).ok();
            });
        }
        let first = receive.recv_timeout(PATIENCE);
        let first = first.expect("no thread waits for ever");
        for (number, (_, bytes)) in first.iter().enumerate() {
            assert!(*bytes == read(&mut alone, number), "{number}");
        }
        for _ in 1..THREADS {
            let other = receive.recv_timeout(PATIENCE);
            assert!(other.expect("no thread waits for ever") == first);
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
            assert_eq!(bytes(frame), read(&mut alone, number), "{number}");
        }
        drop(used);
        let used = get(4);
        assert_eq!(numbers(&frames), [2, 3, 4]);
        frames.keep_one();
        assert_eq!(numbers(&frames), [0; 0]);
        assert_eq!(bytes(&used), read(&mut alone, 4));
        get(0);
        get(1);
        assert_eq!(numbers(&frames), [1]);
    }

    #[test]
    fn two_mebibytes_are_kept_during_a_fill() {
        let (frames, _) = frames();
        frames.keep_many();
        let len = frames.pack.frame(0).expect("the first").len;
        assert_eq!(frames.most.load(Ordering::Relaxed), (2 << 20) / len);
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
        assert!(frames.kept(1).pieces().is_none());
        let got = frames.get(1, None).expect("sound");
        assert_eq!(bytes(&got), read(&mut alone, 1));
    }
}
