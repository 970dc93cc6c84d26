//! New processes, new programs and ends of processes of the whole system, as the kernel tells them (`linux/cn_proc.h`,
//! `Documentation/driver-api/connector.rst`). Nobody is stopped for that.
//!
//! From Linux 6.6 on, any user may listen in the first user and PID namespace; before, only root.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::netlink::{CONNECTOR, SocketAddrNetlink};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, bind, recvfrom, send, socket_with,
};

/// The group and the message of events of processes (`CN_IDX_PROC`, `CN_VAL_PROC`).
const PROCESSES: u32 = 1;

/// What is asked for (`PROC_CN_MCAST_LISTEN`).
const LISTEN: u32 = 1;

/// Kinds of events (`enum proc_cn_event`).
const FORK: u32 = 1;
const EXEC: u32 = 2;
const EXIT: u32 = 0x8000_0000;

/// Bytes of `struct nlmsghdr` and of `struct cn_msg`, and of the event's own head.
const NETLINK_HEAD: usize = 16;
const CONNECTOR_HEAD: usize = 20;
const EVENT_HEAD: usize = 16;
const BODY: usize = NETLINK_HEAD + CONNECTOR_HEAD + EVENT_HEAD;

/// The kind of a message with data (`NLMSG_DONE`).
const DONE: u16 = 3;

/// Bytes of a message, at most.
const MESSAGE: usize = 256;

/// Listens from its making on.
#[derive(Debug)]
pub(super) struct ProcessEvents {
    socket: OwnedFd,
}

/// What has happened to a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ProcessEvent {
    /// It was started by another one.
    Started { parent: i32, child: i32 },
    /// It has become another program.
    BecameProgram(i32),
    /// It has ended.
    Ended(i32),
    /// The kernel had no room for some.
    Missed,
}

impl ProcessEvents {
    /// Begins to listen.
    ///
    /// # Errors
    ///
    /// If the kernel is built without it, or tells this user nothing.
    pub(super) fn listen() -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let kind = SocketType::DGRAM;
        let socket = socket_with(AddressFamily::NETLINK, kind, flags, Some(CONNECTOR))?;
        bind(&socket, &SocketAddrNetlink::new(0, PROCESSES))?;
        send(&socket, &message(&LISTEN.to_ne_bytes()), SendFlags::empty())?;
        // The kernel answers before it returns. In a container it says nothing, then and later.
        let mut buffer = [MaybeUninit::uninit(); MESSAGE];
        recvfrom(&socket, &mut buffer, RecvFlags::empty())?;
        Ok(Self { socket })
    }

    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// What has happened since the last call.
    pub(super) fn read(&self) -> Vec<ProcessEvent> {
        let mut events = Vec::new();
        let mut buffer = [MaybeUninit::uninit(); MESSAGE];
        loop {
            match recvfrom(&self.socket, &mut buffer, RecvFlags::empty()) {
                Ok(((bytes, _), _, from)) => {
                    // Only the kernel has this number.
                    let from = from.and_then(|from| SocketAddrNetlink::try_from(from).ok());
                    if from.is_some_and(|from| from.pid() == 0) {
                        events.extend(parse(bytes));
                    }
                }
                Err(rustix::io::Errno::NOBUFS) => events.push(ProcessEvent::Missed),
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => return events,
            }
        }
    }
}

/// A message for the kernel's listener of processes.
fn message(data: &[u8]) -> Vec<u8> {
    let len = NETLINK_HEAD + CONNECTOR_HEAD + data.len();
    let mut bytes = Vec::with_capacity(len);
    // `data` has 4 bytes.
    let (len, data_len) = (len as u32, data.len() as u16);
    bytes.extend(len.to_ne_bytes());
    bytes.extend(DONE.to_ne_bytes());
    // Flags, number and sender.
    bytes.extend([0; 10]);
    bytes.extend(PROCESSES.to_ne_bytes());
    bytes.extend(PROCESSES.to_ne_bytes());
    // Number and answer.
    bytes.extend([0; 8]);
    bytes.extend(data_len.to_ne_bytes());
    bytes.extend([0; 2]);
    bytes.extend(data);
    bytes
}

/// Reads an event. None for one of a thread, or one that nobody has asked for.
fn parse(bytes: &[u8]) -> Option<ProcessEvent> {
    let number = |at: usize| {
        let bytes = bytes.get(at..at.checked_add(4)?)?;
        Some(i32::from_ne_bytes(bytes.try_into().ok()?))
    };
    let what = number(NETLINK_HEAD + CONNECTOR_HEAD)?.cast_unsigned();
    let (first, second) = (number(BODY)?, number(BODY + 4)?);
    match what {
        FORK => {
            let (child, process) = (number(BODY + 8)?, number(BODY + 12)?);
            (child == process).then_some(ProcessEvent::Started {
                parent: second,
                child,
            })
        }
        EXEC => Some(ProcessEvent::BecameProgram(second)),
        EXIT if first == second => Some(ProcessEvent::Ended(first)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn a_child_is_told_with_its_program_and_its_end() {
        let events = ProcessEvents::listen().expect("these tests run as root");
        let mut child = Command::new("true").spawn().expect("there is true");
        let number = i32::try_from(child.id()).expect("small");
        child.wait().expect("ours");
        let mut told = Vec::new();
        let since = Instant::now();
        // Other tests start processes, too, and the kernel may have had no room.
        while !told.contains(&ProcessEvent::Ended(number)) && !told.contains(&ProcessEvent::Missed)
        {
            assert!(since.elapsed() < Duration::from_secs(30), "{told:?}");
            told.extend(events.read());
        }
        let parent = i32::try_from(std::process::id()).expect("small");
        let expected = [
            ProcessEvent::Started {
                parent,
                child: number,
            },
            ProcessEvent::BecameProgram(number),
            ProcessEvent::Ended(number),
        ];
        let of_child = |event: &ProcessEvent| expected.contains(event);
        told.retain(|event| of_child(event) || *event == ProcessEvent::Missed);
        assert!(
            told == expected || told.contains(&ProcessEvent::Missed),
            "{told:?}"
        );
    }

    #[test]
    fn other_events_and_cut_ones_are_none() {
        let event = |what: u32, numbers: [i32; 4]| {
            let mut bytes = vec![0; NETLINK_HEAD + CONNECTOR_HEAD];
            bytes.extend(what.to_ne_bytes());
            bytes.extend([0; EVENT_HEAD - 4]);
            bytes.extend(numbers.into_iter().flat_map(i32::to_ne_bytes));
            bytes
        };
        let started = ProcessEvent::Started {
            parent: 2,
            child: 3,
        };
        for (what, numbers, expected) in [
            (FORK, [1, 2, 3, 3], Some(started)),
            // A thread.
            (FORK, [1, 2, 4, 3], None),
            (EXEC, [5, 6, 0, 0], Some(ProcessEvent::BecameProgram(6))),
            (EXIT, [6, 6, 0, 0], Some(ProcessEvent::Ended(6))),
            (EXIT, [7, 6, 0, 0], None),
            (4, [6, 6, 0, 0], None),
        ] {
            let bytes = event(what, numbers);
            assert_eq!(parse(&bytes), expected, "{what} {numbers:?}");
            for len in 0..BODY {
                assert_eq!(parse(bytes.get(..len).expect("shorter")), None);
            }
        }
    }
}
