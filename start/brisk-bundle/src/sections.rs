//! Sections of the program that are empty when it is built, and that others fill in.

/// Where newer versions of a bundle are: [`UPDATE_INFORMATION`](crate::elf::UPDATE_INFORMATION).
#[used]
// SAFETY: the section has only this, which is bytes, and no code looks for another kind of value there.
#[unsafe(link_section = ".upd_info")]
static UPDATE_INFORMATION: [u8; 1024] = [0; 1024];

/// A signature of the bundle.
#[used]
// SAFETY: as above.
#[unsafe(link_section = ".sha256_sig")]
static SIGNATURE: [u8; 1024] = [0; 1024];

/// The key of that signature.
#[used]
// SAFETY: as above.
#[unsafe(link_section = ".sig_key")]
static KEY: [u8; 8192] = [0; 8192];

/// Keeps the sections: a linker leaves out what nothing refers to.
pub fn keep() {
    std::hint::black_box((&UPDATE_INFORMATION, &SIGNATURE, &KEY));
}
