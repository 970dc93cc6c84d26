use std::sync::OnceLock;

/// The processor's architecture and the extensions that the kernel has enabled, such as `x86_64 adx aes avx
/// avx2`. Generated code that uses only these runs on every machine with the same text.
///
/// On x86-64 the text names extensions up to AVX-512 with BF16. A generator that uses newer ones (AVX-VNNI,
/// AVX512-FP16, AVX10, AMX, APX) must name them in the key itself. On other architectures the text is what
/// the kernel gives each program (`AT_HWCAP`, `AT_HWCAP2`), in hexadecimal.
pub fn cpu_features() -> &'static str {
    static TEXT: OnceLock<String> = OnceLock::new();
    TEXT.get_or_init(|| {
        let mut words = vec![std::env::consts::ARCH.to_owned()];
        words.extend(extensions());
        words.join(" ")
    })
}

#[cfg(target_arch = "x86_64")]
fn extensions() -> Vec<String> {
    let mut found = Vec::new();
    macro_rules! detect {
        ($($name:tt)*) => {
            $(
                if std::arch::is_x86_feature_detected!($name) {
                    found.push($name.to_owned());
                }
            )*
        };
    }
    // All that Rust 1.88 detects reliably.
    detect! {
        "adx" "aes" "avx" "avx2" "avx512bf16" "avx512bitalg" "avx512bw" "avx512cd" "avx512dq" "avx512f"
        "avx512ifma" "avx512vbmi" "avx512vbmi2" "avx512vl" "avx512vnni" "avx512vp2intersect"
        "avx512vpopcntdq" "bmi1" "bmi2" "cmpxchg16b" "f16c" "fma" "fxsr" "gfni" "lzcnt" "mmx" "movbe"
        "pclmulqdq" "popcnt" "rdrand" "rdseed" "rtm" "sha" "sse" "sse2" "sse3" "sse4.1" "sse4.2" "sse4a"
        "ssse3" "tbm" "tsc" "vaes" "vpclmulqdq" "xsave" "xsavec" "xsaveopt" "xsaves"
    }
    found
}

#[cfg(not(target_arch = "x86_64"))]
fn extensions() -> Vec<String> {
    let (first, second) = rustix::param::linux_hwcap();
    vec![format!("{first:x}"), format!("{second:x}")]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_processor_is_described_in_one_line() {
        let text = cpu_features();
        assert!(text.starts_with(std::env::consts::ARCH), "{text}");
        assert!(text.split(' ').count() > 1, "{text}");
        assert!(text.bytes().all(|b| b.is_ascii_graphic() || b == b' '));
        assert_eq!(text, cpu_features());
        #[cfg(target_arch = "x86_64")]
        assert!(text.contains(" sse2"), "x86-64 has it always: {text}");
    }
}
