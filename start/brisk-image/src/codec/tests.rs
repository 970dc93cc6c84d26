//! Every codec, both ways.

use proptest::prelude::*;

use super::*;
use crate::error::Error;

const MIB: usize = 1 << 20;

fn all() -> Vec<Compression> {
    let xz = |preset, extreme, dict_size, filters: &[Bcj]| Compression::Xz {
        preset,
        extreme,
        dict_size,
        filters: filters.iter().copied().collect(),
    };
    let all = vec![
        Compression::Gzip { level: 1 },
        Compression::Gzip { level: 9 },
        Compression::Gzip { level: 12 },
        Compression::Lzo {},
        Compression::Lz4 { high: None },
        Compression::Lz4 { high: Some(3) },
        Compression::Lz4 { high: Some(12) },
        xz(0, false, None, &[]),
        xz(6, false, None, &Bcj::ALL),
        xz(9, true, Some(12_288), &[]),
        Compression::Zstd { level: 1 },
        Compression::Zstd { level: 7 },
        Compression::Zstd { level: 15 },
        Compression::Zstd { level: 22 },
    ];
    let built = |compression: &Compression| compression.check(1 << 20).is_ok();
    all.into_iter().filter(built).collect()
}

/// Bytes without a pattern, the same for the same `seed`.
fn noise(len: usize, mut seed: u64) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(len);
    for _ in 0..len {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        bytes.push(seed.to_le_bytes()[3]);
    }
    bytes
}

/// Words in no order: halves or better in every codec.
fn text(len: usize, seed: u64) -> Vec<u8> {
    const WORDS: [&str; 8] = [
        "image ",
        "tree\n",
        "profile ",
        "demanded ",
        "replay ",
        "hot ",
        "pack, ",
        "fill ",
    ];
    let mut bytes = Vec::with_capacity(len + 16);
    for n in noise(len, seed) {
        if bytes.len() >= len {
            break;
        }
        bytes.extend(WORDS[usize::from(n) % 8].bytes());
        bytes.push(n);
    }
    bytes.truncate(len);
    bytes
}

fn inputs() -> Vec<Vec<u8>> {
    let mut inputs: Vec<Vec<u8>> = (0..40).map(|len| vec![b'a'; len]).collect();
    for len in [100, 4095, 4096, 8192, 131_072, 131_071, MIB] {
        inputs.push(vec![0; len]);
        inputs.push(text(len, 1));
        inputs.push(noise(len, 2));
    }
    inputs
}

fn decoders(compression: &Compression) -> Vec<Decoder> {
    let decoders: Vec<_> = Decoder::all(compression.codec().unwrap()).collect();
    assert!(!decoders.is_empty());
    decoders
}

#[test]
fn wire_ids_and_names() {
    let known: Vec<_> = (0..=u16::MAX)
        .filter_map(|id| Codec::from_wire(id).map(|codec| (id, codec.name())))
        .collect();
    let ids = [(1, "gzip"), (3, "lzo"), (4, "xz"), (5, "lz4"), (6, "zstd")];
    assert_eq!(known, ids);
    for (id, name) in ids {
        let codec: Codec = name.parse().unwrap();
        assert_eq!((codec.to_wire(), codec.to_string().as_str()), (id, name));
        let compression: Compression = name.parse().unwrap();
        assert_eq!(compression, Compression::default_for(codec));
        assert_eq!(compression.codec(), Some(codec));
    }
    assert_eq!("none".parse::<Compression>().unwrap(), Compression::None);
}

#[test]
fn errors_say_what_is_allowed() {
    let text = |e: Error| e.to_string();
    assert_eq!(
        text("none".parse::<Codec>().unwrap_err()),
        "codec is \"none\", allowed is gzip, lzo, xz, lz4 or zstd"
    );
    assert_eq!(
        text("lzma".parse::<Compression>().unwrap_err()),
        "codec is \"lzma\", allowed is none, gzip, lzo, xz, lz4 or zstd"
    );
    let with_level = |name: &str, level| {
        let compression: Compression = name.parse().unwrap();
        compression.with_level(level).map_err(text)
    };
    for (name, level, expected) in [
        ("none", 1, "codec none has no levels"),
        ("lzo", 1, "codec lzo has no levels"),
        ("gzip", 13, "gzip level is 13, allowed is 1 to 12"),
        (
            "lz4",
            1,
            "lz4 level is 1, allowed is 3 to 12, or none for the fast mode",
        ),
        ("xz", 10, "xz preset is 10, allowed is 0 to 9"),
        ("zstd", 0, "zstd level is 0, allowed is 1 to 22"),
    ] {
        assert_eq!(with_level(name, level), Err(expected.to_owned()));
    }
    assert_eq!(
        with_level("lz4", 12),
        Ok(Compression::Lz4 { high: Some(12) })
    );
    for (size, block_size) in [(4096, 4096), (9000, 131_072), (262_144, 131_072)] {
        let compression = Compression::Xz {
            preset: 6,
            extreme: false,
            dict_size: Some(size),
            filters: BcjSet::EMPTY,
        };
        let e = Encoder::new(&compression, block_size).err().map(text);
        let expected = format!(
            "xz dictionary size is {size}, allowed is 2^n or 2^n + 2^(n-1), \
             8192 to the block size of {block_size}"
        );
        assert_eq!(e, Some(expected));
    }
}

/// The JSON is kept in images, so old forms have to stay readable.
#[test]
fn json_form() {
    for (compression, json) in [
        (Compression::None, r#"{"codec":"none"}"#),
        (Compression::Lzo {}, r#"{"codec":"lzo"}"#),
        (Compression::Lz4 { high: None }, r#"{"codec":"lz4"}"#),
        (
            Compression::Lz4 { high: Some(9) },
            r#"{"codec":"lz4","high":9}"#,
        ),
        (
            Compression::default_for(Codec::Xz),
            r#"{"codec":"xz","preset":6}"#,
        ),
        (
            Compression::Xz {
                preset: 9,
                extreme: true,
                dict_size: Some(65_536),
                filters: [Bcj::Arm64, Bcj::X86].into_iter().collect(),
            },
            r#"{"codec":"xz","preset":9,"extreme":true,"dict_size":65536,"filters":["x86","arm64"]}"#,
        ),
        (
            Compression::Zstd { level: 15 },
            r#"{"codec":"zstd","level":15}"#,
        ),
    ] {
        assert_eq!(serde_json::to_string(&compression).unwrap(), json);
        assert_eq!(
            serde_json::from_str::<Compression>(json).unwrap(),
            compression
        );
    }
}

#[test]
fn blocks_come_back() {
    let inputs = inputs();
    for compression in all() {
        let mut encoder = Encoder::new(&compression, 1 << 20).unwrap();
        let mut decoders = decoders(&compression);
        let mut stored = vec![1, 2, 3];
        for input in &inputs {
            let n = input.len();
            let smaller = encoder.encode(input, &mut stored).unwrap();
            // Zeros and text of some length get smaller, noise and a few bytes do not.
            let expected = match n {
                0..=3 => Some(false),
                4..=100 => None,
                _ => Some(input != &noise(n, 2)),
            };
            if let Some(expected) = expected {
                assert_eq!(smaller, expected, "{compression:?}, {n} bytes");
            }
            if !smaller {
                assert!(stored.is_empty());
                continue;
            }
            assert!(stored.len() < n, "{compression:?}, {n} bytes");
            // With just the room that is needed, and with more.
            for decoder in &mut decoders {
                for room in [n, n + 1, 2 * n + 100] {
                    let mut out = vec![0xaa; room];
                    assert_eq!(decoder.decode(&stored, &mut out), Ok(n), "{compression:?}");
                    assert!(out[..n] == input[..], "{compression:?}, {n} bytes");
                }
            }
        }
    }
}

/// They go to the threads of a pool.
#[test]
fn encoders_and_decoders_can_move_to_another_thread() {
    fn is_send<T: Send>() {}
    is_send::<Encoder>();
    is_send::<Decoder>();
}

#[test]
fn none_stores_everything() {
    let mut encoder = Encoder::new(&Compression::None, 131_072).unwrap();
    let mut out = vec![1];
    assert!(!encoder.encode(&[0; 1000], &mut out).unwrap());
    assert!(out.is_empty());
}

#[test]
fn what_was_encoded_before_does_not_matter() {
    let mut inputs: Vec<Vec<u8>> = (0..60)
        .map(|i| text(30 + usize::try_from(i * 141 % 5000).unwrap(), i + 1))
        .collect();
    inputs.extend([text(200_000, 3), noise(20_000, 4), text(9000, 5)]);
    inputs.extend([noise(5000, 6), text(3000, 7), text(70_000, 8)]);
    for compression in all() {
        let mut reused = Encoder::new(&compression, 1 << 20).unwrap();
        let (mut a, mut b) = (Vec::new(), Vec::new());
        // Forth and back, so that each input comes behind others.
        for input in inputs.iter().chain(inputs.iter().rev()) {
            let mut fresh = Encoder::new(&compression, 1 << 20).unwrap();
            // The state of lz4 belongs to the thread, not to the encoder.
            let first = std::thread::scope(|scope| {
                let encode = || fresh.encode(input, &mut a).unwrap();
                scope.spawn(encode).join().unwrap()
            });
            assert_eq!(first, reused.encode(input, &mut b).unwrap());
            assert!(a == b, "{compression:?}, {} bytes", input.len());
        }
    }
}

#[test]
fn a_longer_block_than_allowed_is_refused() {
    for compression in all() {
        let input = vec![0; MIB];
        let mut stored = Vec::new();
        let mut encoder = Encoder::new(&compression, 1 << 20).unwrap();
        assert!(encoder.encode(&input, &mut stored).unwrap());
        for mut decoder in decoders(&compression) {
            for room in [0, 1, 8192, MIB - 1] {
                let e = decoder.decode(&stored, &mut vec![0; room]).unwrap_err();
                let expected = format!("decodes to more than {room} bytes");
                assert!(e.reason.ends_with(&expected), "{compression:?}: {e}");
            }
            // And the decoder goes on after it.
            let mut out = vec![1; MIB];
            assert_eq!(decoder.decode(&stored, &mut out), Ok(MIB));
        }
    }
}

#[test]
fn damage_is_an_error_or_other_bytes() {
    let input = text(600, 9);
    for compression in all() {
        let mut stored = Vec::new();
        let mut encoder = Encoder::new(&compression, 32_768).unwrap();
        assert!(encoder.encode(&input, &mut stored).unwrap());
        for mut decoder in decoders(&compression) {
            let mut out = vec![0; 8192];
            for at in 0..stored.len() {
                for bit in 0..8 {
                    stored[at] ^= 1 << bit;
                    if let Ok(len) = decoder.decode(&stored, &mut out) {
                        assert!(len <= out.len(), "{compression:?}");
                    }
                    stored[at] ^= 1 << bit;
                }
                // A cut block never passes for the whole.
                match decoder.decode(&stored[..at], &mut out) {
                    Ok(len) => assert_ne!(len, input.len(), "{compression:?}, {at}"),
                    Err(e) => assert!(!e.reason.is_empty()),
                }
            }
            assert_eq!(decoder.decode(&stored, &mut out), Ok(input.len()));
            assert_eq!(out[..input.len()], input);
        }
    }
}

/// Those with a checksum notice every flipped bit.
#[test]
fn checksums_are_checked() {
    let input = text(600, 9);
    for codec in [Codec::Gzip, Codec::Xz] {
        let compression = Compression::default_for(codec);
        let mut stored = Vec::new();
        let mut encoder = Encoder::for_metadata(&compression).unwrap();
        assert!(encoder.encode(&input, &mut stored).unwrap());
        let mut out = vec![0; 8192];
        for at in 0..stored.len() {
            stored[at] ^= 0x10;
            for mut decoder in decoders(&compression) {
                // Only bits that mean nothing may change unseen, such as the level in a zlib header.
                if decoder.decode(&stored, &mut out).is_ok() {
                    assert_eq!(out[..input.len()], input, "{codec}, {at}");
                }
            }
            stored[at] ^= 0x10;
        }
    }
}

/// The streams are made by hand, so that the decoders are not only tested on what libdeflate writes.
#[test]
fn zlib_streams_of_any_window_are_decoded() {
    let deflated = [0x4b, 0x4c, 0x4a, 0x06, 0x00]; // "abc" with fixed codes
    let adler = [0x02, 0x4d, 0x01, 0x27];
    for window in 0..=7u8 {
        let cmf = window << 4 | 8;
        let flg = (31 - u16::from(cmf) * 256 % 31) % 31;
        let mut stream = vec![cmf, u8::try_from(flg).unwrap()];
        stream.extend(deflated);
        stream.extend(adler);
        for mut decoder in Decoder::all(Codec::Gzip) {
            let mut out = [0; 3];
            assert_eq!(decoder.decode(&stream, &mut out), Ok(3), "{window}");
            assert_eq!(&out, b"abc");
        }
    }
}

#[test]
fn an_lz4_block_made_by_hand_is_decoded() {
    // Two literals, a match of 4 + 4 bytes at distance 2, then five literals as the end.
    let block = [0x24, b'a', b'b', 2, 0, 0x50, b'c', b'd', b'e', b'f', b'g'];
    for mut decoder in Decoder::all(Codec::Lz4) {
        let mut out = [0; 15];
        assert_eq!(decoder.decode(&block, &mut out), Ok(15));
        assert_eq!(&out, b"ababababab\x63defg");
        let e = decoder.decode(&block, &mut out[..14]).unwrap_err();
        assert!(e.reason.ends_with("decodes to more than 14 bytes"), "{e}");
    }
}

/// What all decoders of a codec say of a block that does not decode to `room` bytes.
#[track_caller]
fn reason(codec: Codec, stored: &[u8], room: usize) -> String {
    let reason = |mut decoder: Decoder| {
        let decoded = decoder.decode(stored, &mut vec![0; room]);
        decoded.unwrap_err().reason
    };
    let mut said: Vec<_> = Decoder::all(codec).map(reason).collect();
    said.dedup();
    assert_eq!(said.len(), 1, "{said:?}");
    said.remove(0)
}

#[cfg(feature = "zstd")]
#[test]
fn decoders_of_zstd_say_what_is_wrong() {
    let mut frame = Vec::new();
    let mut encoder = Encoder::new(&Compression::Zstd { level: 15 }, 4096).unwrap();
    assert!(encoder.encode(&[7; 1000], &mut frame).unwrap());
    let reason = |stored: &[u8], room| reason(Codec::Zstd, stored, room);
    assert_eq!(reason(&frame, 999), "decodes to more than 999 bytes");
    let twice = frame.repeat(2);
    assert_eq!(reason(&twice, 2000), "goes on behind its first frame");
}

/// A stream as an image has it, with any dictionary.
#[cfg(feature = "xz")]
fn xz_stream(input: &[u8], dict_size: u32) -> Vec<u8> {
    use liblzma::stream::{Action, Check, Filters, LzmaOptions, Stream};

    let mut options = LzmaOptions::new_preset(6).unwrap();
    options.dict_size(dict_size);
    let mut chain = Filters::new();
    chain.lzma2(&options);
    let mut stream = Stream::new_stream_encoder(&chain, Check::Crc32).unwrap();
    let mut out = vec![0; input.len()];
    stream.process(input, &mut out, Action::Finish).unwrap();
    out.truncate(usize::try_from(stream.total_out()).unwrap());
    out
}

#[cfg(feature = "xz")]
#[test]
fn decoders_of_xz_say_what_is_wrong() {
    let stream = xz_stream(&[7; 5000], 8192);
    let reason = |stored: &[u8], room| reason(Codec::Xz, stored, room);
    assert_eq!(reason(&stream, 4999), "decodes to more than 4999 bytes");
    let longer = [&stream[..], &[0; 4]].concat();
    assert_eq!(reason(&longer, 5000), "goes on behind its end");
    assert_eq!(reason(&stream.repeat(2), 10_000), "goes on behind its end");
    for len in [0, 7, 40, stream.len() - 1] {
        assert_eq!(reason(&stream[..len], 5000), "ends before its end", "{len}");
    }
    assert_eq!(reason(&[0; 64], 5000), "not an xz stream");
    let mut damaged = stream;
    damaged[14] ^= 1; // in the block header, which has a checksum of its own
    assert_eq!(reason(&damaged, 5000), "not a valid xz stream");
}

/// A block of a few bytes that asks for a dictionary of 2 MiB.
#[cfg(feature = "xz")]
#[test]
fn a_large_dictionary_is_refused_before_it_is_allocated() {
    let stream = xz_stream(&[9; 200], 1 << 20);
    for mut decoder in Decoder::all(Codec::Xz) {
        assert_eq!(decoder.decode(&stream, &mut [0; 200]), Ok(200));
    }
    let larger = xz_stream(&[9; 200], 2 << 20);
    let said = reason(Codec::Xz, &larger, 200);
    assert_eq!(said, "needs more than 2097152 bytes of memory");
}

/// Both kinds must call the same blocks damaged, or an image would be whole for one program and damaged
/// for another. Where they do differ, only one of them takes what no encoder writes: libzstd decodes
/// some Huffman streams that do not end where they must, lz4 demands five literals at the end, and
/// lz4_flex refuses the distance 0.
#[test]
fn decoders_of_a_codec_agree() {
    let mut seed = 5;
    let mut next = || {
        seed = noise(8, seed)
            .iter()
            .fold(seed, |sum, &byte| sum.rotate_left(8) ^ u64::from(byte));
        seed | 1
    };
    for compression in all() {
        let mut decoders = decoders(&compression);
        let [in_c, in_rust] = &mut decoders[..] else {
            continue;
        };
        let mut encoder = Encoder::new(&compression, 1 << 20).unwrap();
        let mut stored = Vec::new();
        let (mut c, mut rust) = (vec![0; 70_000], vec![0; 70_000]);
        let mut same = 0;
        for len in [300, 5000, 66_000] {
            let input = text(len, next());
            assert!(encoder.encode(&input, &mut stored).unwrap());
            for _ in 0..300 {
                let mut damaged = stored.clone();
                let at = usize::try_from(next()).unwrap() % damaged.len();
                match next() % 5 {
                    1 => damaged.truncate(at),
                    3 => damaged.push(1),
                    _ => damaged[at] ^= 1 << (next() % 7),
                }
                match (
                    in_c.decode(&damaged, &mut c),
                    in_rust.decode(&damaged, &mut rust),
                ) {
                    (Ok(a), Ok(b)) => {
                        assert!(c[..a] == rust[..b], "{compression:?}");
                        same += 1;
                    }
                    (Err(_), Err(_)) => {}
                    (Ok(_), Err(e)) => {
                        let differs = match compression.codec() {
                            Some(Codec::Zstd) => {
                                e.reason.contains("Huffman") || e.reason.contains("window")
                            }
                            Some(Codec::Lz4) => e.reason.contains("before its start"),
                            _ => false,
                        };
                        assert!(differs, "{compression:?}: only in Rust: {e}");
                    }
                    (Err(e), Ok(_)) => {
                        let lz4 = compression.codec() == Some(Codec::Lz4);
                        assert!(lz4, "{compression:?}: only in C: {e}");
                    }
                }
            }
        }
        // xz checks every bit, and that nothing comes behind it.
        let unseen = compression.codec() != Some(Codec::Xz);
        assert_eq!(same > 0, unseen, "{compression:?}");
    }
}

/// Prints what README.md says of the speed of the decoders in Rust. Run it with
/// `cargo test --release -p brisk-image --features rust-decoders --lib speed -- --ignored --nocapture`.
#[test]
#[ignore = "measures, and only a person can judge"]
fn speed_of_the_decoders_in_rust() {
    let program = std::fs::read("/proc/self/exe").unwrap();
    for block_size in [128 << 10, MIB] {
        for name in ["gzip", "lz4", "xz", "zstd"] {
            let compression: Compression = name.parse().unwrap();
            let size = u32::try_from(block_size).unwrap();
            let mut encoder = Encoder::new(&compression, size).unwrap();
            let mut blocks = Vec::new();
            for block in program
                .chunks_exact(block_size)
                .take((8 << 20) / block_size)
            {
                let mut stored = Vec::new();
                if encoder.encode(block, &mut stored).unwrap() {
                    blocks.push(stored);
                }
            }
            let mut out = vec![0; block_size];
            let mut seconds = decoders(&compression).into_iter().map(|mut decoder| {
                let times = (0..7).map(|_| {
                    let start = std::time::Instant::now();
                    for block in &blocks {
                        assert_eq!(decoder.decode(block, &mut out), Ok(block_size));
                    }
                    start.elapsed().as_secs_f64()
                });
                times.fold(f64::MAX, f64::min)
            });
            let (in_c, in_rust) = (seconds.next().unwrap(), seconds.next().unwrap());
            println!("{name}, blocks of {block_size}: {:.2} of C", in_c / in_rust);
        }
    }
}

fn block() -> impl Strategy<Value = Vec<u8>> {
    let pieces = prop_oneof![
        (0usize..300, any::<u64>()).prop_map(|(len, seed)| noise(len, seed | 1)),
        (0usize..5000, any::<u8>()).prop_map(|(len, byte)| vec![byte; len]),
        (0usize..3000, any::<u64>()).prop_map(|(len, seed)| text(len, seed | 1)),
    ];
    prop::collection::vec(pieces, 0..6).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn any_block_comes_back(block in block()) {
        for compression in all() {
            let mut stored = Vec::new();
            let mut encoder = Encoder::new(&compression, 32_768).unwrap();
            if encoder.encode(&block, &mut stored).unwrap() {
                for mut decoder in decoders(&compression) {
                    let mut out = vec![0; block.len()];
                    let found = decoder.decode(&stored, &mut out);
                    prop_assert_eq!(found, Ok(block.len()));
                    prop_assert!(out == block, "{:?}", compression);
                }
            }
        }
    }

    #[test]
    fn any_bytes_decode_or_fail(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        for codec in Codec::ALL {
            let mut out = vec![0; 8192];
            for mut decoder in Decoder::all(codec) {
                if let Ok(len) = decoder.decode(&bytes, &mut out) {
                    prop_assert!(len <= out.len());
                }
            }
        }
    }
}

#[test]
fn dictionary_sizes() {
    let valid: Vec<u32> = (4096..=65_536).filter(|&size| is_dict_size(size)).collect();
    let expected = [
        4096, 6144, 8192, 12_288, 16_384, 24_576, 32_768, 49_152, 65_536,
    ];
    assert_eq!(valid, expected);
    assert!(!is_dict_size(0));
    assert!(is_dict_size(1 << 31) && is_dict_size(3 << 30) && !is_dict_size(u32::MAX));
}
