//! A TUN device: a network device whose packets a process reads and writes.
//!
//! The crates for this (`tappers`, `tun-rs`) have thousands of lines, also for other systems. This needs one call.

use std::fs::File;
use std::io::{self, Read, Write};

use rustix::fs::{FileType, fstat, makedev};
use rustix::ioctl::{Opcode, Updater, ioctl, opcode};

/// `TUNSETIFF` of `linux/if_tun.h`, which says that its argument is an `int`. It is a `struct ifreq`.
const TUNSETIFF: Opcode = opcode::write::<i32>(b'T', 202);

/// `IFF_TUN` and `IFF_NO_PI`: packets of IP, without a header before them.
const FLAGS: u16 = 0x0001 | 0x1000;

/// `struct ifreq` of `linux/if.h`.
///
/// 1. It is at least as long as the kernel's, which has 40 bytes on machines of 64 bits and 32 on others.
#[repr(C)]
struct Request {
    name: [u8; 16],
    flags: u16,
    unused: [u8; 22],
}

/// A TUN device. It goes when this value is dropped.
pub struct TunDevice(File);

impl TunDevice {
    /// Makes a device with this name in the network namespace of this thread.
    pub fn new(name: &str) -> io::Result<Self> {
        let mut request = Request {
            name: [0; 16],
            flags: FLAGS,
            unused: [0; 22],
        };
        // The last byte stays 0.
        let place = request.name.get_mut(..name.len());
        let place = place
            .filter(|place| place.len() < 16)
            .ok_or_else(|| io::Error::other("the name of a network device has at most 15 bytes"))?;
        place.copy_from_slice(name.as_bytes());
        let file = File::options()
            .read(true)
            .write(true)
            .open("/dev/net/tun")?;
        let stat = fstat(&file)?;
        let is_character = FileType::from_raw_mode(stat.st_mode) == FileType::CharacterDevice;
        if !is_character || stat.st_rdev != makedev(10, 200) {
            return Err(io::Error::other("/dev/net/tun is another device"));
        }
        // SAFETY: TUNSETIFF reads a `struct ifreq` and writes it back. `Request` has its layout, is as long (invariant 1)
        // and may have any bytes.
        let argument = unsafe { Updater::<TUNSETIFF, Request>::new(&mut request) };
        // SAFETY: as above. The driver is that of TUN devices (checked above), and so the opcode has this meaning. It keeps
        // no pointer to the argument, which outlives the call.
        unsafe { ioctl(&file, argument) }?;
        Ok(Self(file))
    }

    /// Waits for a packet that the kernel sends through the device, and returns its length. What does not fit is lost.
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<usize> {
        (&self.0).read(buffer)
    }

    /// Gives the kernel a packet, as if it had come from the network.
    pub fn deliver(&self, packet: &[u8]) -> io::Result<()> {
        (&self.0).write_all(packet)
    }
}
