//! Connections between two processes of a machine: Unix sockets of whole packets, in the abstract namespace.
//!
//! Such a name is bound to one socket, and is gone with it: nothing is left in the file system, however a process ends. No call
//! waits for the other side, whatever that side does to its own end: waiting would be a flag of each call, not of the socket.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

use crate::sys::descriptors::beyond_standard;

/// The connections that wait for being accepted, at most; the system may allow fewer.
const BACKLOG: libc::c_int = 4096;

/// The most descriptors of one packet, which the system allows (SCM_MAX_FD): it would close those for which there is no room, in the receiver's
/// call.
const DESCRIPTORS: usize = 253;

/// The most packets that are received of a connection that is closed. A user without privileges can have some hundreds under way.
const UNRECEIVED: usize = 4096;

/// The longest name, in bytes.
pub(crate) const LONGEST_NAME: usize = 107;

const DO_NOT_WAIT: libc::c_int = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;

fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Takes over a descriptor that a call has just returned.
fn owned(descriptor: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: I7: it was just opened, and has no other owner.
    beyond_standard(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

fn socket(flags: libc::c_int) -> io::Result<OwnedFd> {
    let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC | flags;
    // SAFETY: I7: touches no memory.
    check(unsafe { libc::socket(libc::AF_UNIX, kind, 0) }).and_then(owned)
}

/// The address of an abstract name, with its length.
fn address(name: &[u8]) -> io::Result<(libc::sockaddr_un, libc::socklen_t)> {
    let mut address = libc::sockaddr_un { sun_family: libc::AF_UNIX as libc::sa_family_t, sun_path: [0; 108] };
    if name.is_empty() || name.len() > LONGEST_NAME {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    for (target, byte) in address.sun_path[1..].iter_mut().zip(name) {
        *target = *byte as libc::c_char;
    }
    let len = core::mem::offset_of!(libc::sockaddr_un, sun_path) + 1 + name.len();
    Ok((address, len as libc::socklen_t))
}

/// Listens at a name. [`io::ErrorKind::AddrInUse`]: another socket has it.
pub(crate) fn listen(name: &[u8]) -> io::Result<OwnedFd> {
    let socket = socket(libc::SOCK_NONBLOCK)?;
    let (address, len) = address(name)?;
    // SAFETY: I7: the address is live, and not shorter than stated.
    check(unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), len) })?;
    // SAFETY: I7: touches no memory.
    check(unsafe { libc::listen(socket.as_raw_fd(), BACKLOG) })?;
    Ok(socket)
}

/// The longest that a call waits to send, or to connect.
fn limit_sends(socket: &OwnedFd, timeout: Duration) -> io::Result<()> {
    let seconds = timeout.as_secs().min(libc::time_t::MAX as u64) as libc::time_t;
    // Zeros would mean: without limit.
    let microseconds = timeout.subsec_micros().max(1);
    let limit = libc::timeval { tv_sec: seconds, tv_usec: microseconds as _ };
    set_option(socket.as_raw_fd(), libc::SO_SNDTIMEO, &limit)
}

/// Connects to who listens at a name. Waits for room among the connections that are to be accepted, at most for so long.
/// [`io::ErrorKind::WouldBlock`]: there was none.
pub(crate) fn connect(name: &[u8], timeout: Option<Duration>) -> io::Result<OwnedFd> {
    // The shortest limit that the system knows is one of its ticks.
    let waits = timeout.is_none_or(|timeout| !timeout.is_zero());
    let socket = socket(if waits { 0 } else { libc::SOCK_NONBLOCK })?;
    let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
    let (address, len) = address(name)?;
    loop {
        // After a signal it is called again, for the time that is left.
        if let Some(deadline) = deadline {
            limit_sends(&socket, deadline.saturating_duration_since(Instant::now()))?;
        }
        // SAFETY: I7: the address is live, and not shorter than stated.
        let result = check(unsafe { libc::connect(socket.as_raw_fd(), (&raw const address).cast(), len) });
        match result {
            Ok(_) => return Ok(socket),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// The next connection. [`io::ErrorKind::WouldBlock`]: there is none.
pub(crate) fn accept(listener: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let none = core::ptr::null_mut();
    let flags = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: I7: no address is asked for, so nothing is written.
    check(unsafe { libc::accept4(listener.as_raw_fd(), none, core::ptr::null_mut(), flags) }).and_then(owned)
}

/// Sends a packet.
pub(crate) fn send(socket: RawFd, packet: &[u8]) -> io::Result<()> {
    // SAFETY: I7: a live slice.
    let sent = unsafe { libc::send(socket, packet.as_ptr().cast(), packet.len(), DO_NOT_WAIT) };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// What a packet carries besides its bytes: integers, of which any are valid.
trait Beside {}

/// What one with descriptors carries.
#[repr(C)]
struct Control<const N: usize> {
    header: libc::cmsghdr,
    descriptors: [RawFd; N],
}

impl<const N: usize> Control<N> {
    fn new() -> Self {
        // SAFETY: I7: integers only, for which zeros are valid.
        let mut header: libc::cmsghdr = unsafe { core::mem::zeroed() };
        header.cmsg_level = libc::SOL_SOCKET;
        header.cmsg_type = libc::SCM_RIGHTS;
        Control { header, descriptors: [-1; N] }
    }

    /// Takes over the descriptors that a packet has brought, of which the system says that this number of bytes were given.
    fn received(self, given: usize) -> io::Result<Vec<OwnedFd>> {
        #[allow(clippy::unnecessary_cast, reason = "the types differ between C libraries")]
        let header_len = self.header.cmsg_len as usize;
        let is_given = given >= size_of::<libc::cmsghdr>()
            && self.header.cmsg_level == libc::SOL_SOCKET
            && self.header.cmsg_type == libc::SCM_RIGHTS;
        let bytes = header_len.saturating_sub(size_of::<libc::cmsghdr>());
        let count = if is_given { (bytes / size_of::<RawFd>()).min(N) } else { 0 };
        self.descriptors[..count].iter().for_each(|descriptor| do_not_linger(*descriptor));
        // All of them, so that none stays open where one fails.
        let owned: Vec<_> = self.descriptors[..count].iter().map(|descriptor| owned(*descriptor)).collect();
        owned.into_iter().collect()
    }
}

impl<const N: usize> Beside for Control<N> {}

/// What one carries of a connection whose packets say who has sent them.
#[repr(C)]
struct Signed {
    header: libc::cmsghdr,
    sender: libc::ucred,
    rest: Control<{ DESCRIPTORS + 1 }>,
}

impl Beside for Signed {}

impl Signed {
    fn new() -> Self {
        let Control { header, .. } = Control::<0>::new();
        Signed { header, sender: libc::ucred { pid: 0, uid: 0, gid: 0 }, rest: Control::new() }
    }
}

fn message<C: Beside>(part: &mut libc::iovec, control: &mut C) -> libc::msghdr {
    // SAFETY: I7: integers and pointers, for which zeros are valid.
    let mut message: libc::msghdr = unsafe { core::mem::zeroed() };
    message.msg_iov = part;
    message.msg_iovlen = 1;
    message.msg_control = core::ptr::from_mut(control).cast();
    message.msg_controllen = size_of::<C>() as _;
    message
}

/// Sends a packet with a descriptor.
pub(crate) fn send_with(socket: BorrowedFd<'_>, packet: &[u8], descriptor: BorrowedFd<'_>) -> io::Result<()> {
    let mut part = libc::iovec { iov_base: packet.as_ptr().cast_mut().cast(), iov_len: packet.len() };
    // Two, one of which is not sent: the size of a control message is that of whole words.
    let mut control = Control::<2>::new();
    control.header.cmsg_len = (size_of::<libc::cmsghdr>() + size_of::<RawFd>()) as _;
    control.descriptors[0] = descriptor.as_raw_fd();
    let message = message(&mut part, &mut control);
    // SAFETY: I7: the message, its part and its control are live, and of the stated lengths; the part is only read.
    let sent = unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const message, DO_NOT_WAIT) };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Receives a packet, and cuts what the buffer has no room for. 0 bytes: the other side has closed. Descriptors are closed.
pub(crate) fn receive(socket: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<usize> {
    receive_with(socket, buffer).map(|packet| packet.len)
}

/// From now on nobody can send descriptors over this connection, where the system can say so.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64"))]
pub(crate) fn refuse_descriptors(socket: BorrowedFd<'_>) {
    /// Since Linux 6.16; not in the libc crate.
    const SO_PASSRIGHTS: libc::c_int = 83;
    let _ = set_option(socket.as_raw_fd(), SO_PASSRIGHTS, &0i32);
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64")))]
pub(crate) fn refuse_descriptors(_socket: BorrowedFd<'_>) {}

/// Closing this socket, if it is one, does not wait until what was sent over it has arrived: its sender may have asked for that.
fn do_not_linger(descriptor: RawFd) {
    let _ = set_option(descriptor, libc::SO_LINGER, &libc::linger { l_onoff: 0, l_linger: 0 });
}

fn set_option<T>(descriptor: RawFd, option: libc::c_int, value: &T) -> io::Result<()> {
    let (value, len) = (core::ptr::from_ref(value), size_of::<T>() as libc::socklen_t);
    // SAFETY: I7: the value is live, and of the stated length.
    check(unsafe { libc::setsockopt(descriptor, libc::SOL_SOCKET, option, value.cast(), len) })?;
    Ok(())
}

/// A packet with descriptors.
pub(crate) struct Packet {
    pub(crate) len: usize,
    pub(crate) descriptors: Vec<OwnedFd>,
    /// Whether bytes or descriptors were cut.
    pub(crate) truncated: bool,
}

/// Receives a packet, and what it carries besides its bytes: the length of either, and whether one was cut.
fn receive_into<C: Beside>(
    socket: BorrowedFd<'_>,
    buffer: &mut [u8],
    control: &mut C,
) -> io::Result<(usize, usize, bool)> {
    let mut part = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    let mut message = message(&mut part, control);
    let flags = libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC;
    // SAFETY: I7: the message, its part and its control are live, ours alone, and of the stated lengths.
    let received = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, flags) };
    let len = usize::try_from(received).map_err(|_| io::Error::last_os_error())?;
    let truncated = message.msg_flags & (libc::MSG_CTRUNC | libc::MSG_TRUNC) != 0;
    #[allow(clippy::unnecessary_cast, reason = "the types differ between C libraries")]
    let given = message.msg_controllen as usize;
    Ok((len, given, truncated))
}

/// Receives a packet and the descriptors that it carries.
pub(crate) fn receive_with(socket: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<Packet> {
    // Of whole words.
    let mut control = Control::<{ DESCRIPTORS + 1 }>::new();
    let (len, given, truncated) = receive_into(socket, buffer, &mut control)?;
    Ok(Packet { len, descriptors: control.received(given)?, truncated })
}

/// Closes a connection. First what has come and was not received is received, and its descriptors are closed: the system would close
/// them as slowly as their sender wants it.
pub(crate) fn close(socket: OwnedFd) {
    // Nothing more comes from here on.
    hang_up(socket.as_fd());
    // What says who has sent it is a packet, also without a byte; where nothing is left nothing says so.
    if set_option(socket.as_raw_fd(), libc::SO_PASSCRED, &1i32).is_err() {
        return;
    }
    for _ in 0..UNRECEIVED {
        let mut control = Signed::new();
        match receive_into(socket.as_fd(), &mut [], &mut control) {
            Ok((_, 0, _)) => break,
            Ok((_, given, _)) => {
                let given = given.saturating_sub(core::mem::offset_of!(Signed, rest));
                drop(control.rest.received(given));
            }
            Err(error) => match error.kind() {
                io::ErrorKind::ConnectionReset | io::ErrorKind::Interrupted => {}
                _ => break,
            },
        }
    }
}

/// The process at the other end: the one that has connected, or that has listened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Credentials {
    /// 0: of another PID namespace.
    pub(crate) process: u32,
    pub(crate) user: u32,
}

/// Who is at the other end, as the system has noted it when the connection was made.
pub(crate) fn credentials(socket: BorrowedFd<'_>) -> io::Result<Credentials> {
    let mut credentials = MaybeUninit::<libc::ucred>::zeroed();
    option(socket, libc::SO_PEERCRED, &mut credentials)?;
    // SAFETY: I7: integers, which were zeros before the call.
    let credentials = unsafe { credentials.assume_init() };
    Ok(Credentials { process: u32::try_from(credentials.pid).unwrap_or(0), user: credentials.uid })
}

/// The process at the other end.
pub(crate) enum Process {
    Is(OwnedFd),
    /// It, or another one that has its number now: kernels before 6.5 know no more, and before 6.16 of one that has ended and was waited for.
    MayBe(OwnedFd),
    /// It has ended, and was waited for: none has its number.
    Gone,
    /// The system does not tell.
    Unknown,
}

/// The process at the other end, of this number.
pub(crate) fn process(socket: BorrowedFd<'_>, number: u32) -> Process {
    let mut descriptor = MaybeUninit::<RawFd>::zeroed();
    if option(socket, libc::SO_PEERPIDFD, &mut descriptor).is_ok() {
        // SAFETY: I7: an integer, which was zero before the call.
        return owned(unsafe { descriptor.assume_init() }).map_or(Process::Unknown, Process::Is);
    }
    // SAFETY: I7: touches no memory.
    let opened = unsafe { libc::syscall(libc::SYS_pidfd_open, number, 0) };
    if opened >= 0 {
        return owned(opened as RawFd).map_or(Process::Unknown, Process::MayBe);
    }
    // One of another PID namespace has the number 0 here, which is another error.
    match io::Error::last_os_error().raw_os_error() {
        Some(libc::ESRCH) => Process::Gone,
        _ => Process::Unknown,
    }
}

fn option<T>(socket: BorrowedFd<'_>, option: libc::c_int, value: &mut MaybeUninit<T>) -> io::Result<()> {
    let mut len = size_of::<T>() as libc::socklen_t;
    let (level, value) = (libc::SOL_SOCKET, value.as_mut_ptr().cast());
    // SAFETY: I7: the system writes `len` bytes at most, which is the size of the value.
    check(unsafe { libc::getsockopt(socket.as_raw_fd(), level, option, value, &raw mut len) })?;
    Ok(())
}

/// Ends a connection, or nobody connects to a listener any more. To close it is not enough where others have the socket, too: a forked child, or a
/// call of another thread that is just looking at it.
pub(crate) fn hang_up(socket: BorrowedFd<'_>) {
    // SAFETY: I7: touches no memory.
    let _ = check(unsafe { libc::shutdown(socket.as_raw_fd(), libc::SHUT_RDWR) });
}

/// Wakes the process at the other end, which has said that it sleeps. An error means that it is gone, or that it has not read
/// what was sent before: then its end is readable anyway.
#[cold]
pub(crate) fn ring(socket: RawFd) {
    let _ = send(socket, &[RING]);
}

/// The packet that wakes.
pub(crate) const RING: u8 = 0;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::testing::{in_forked_child, is_closed_by_exec};

    fn unique(name: &str) -> Vec<u8> {
        format!("intranode-test-{}-{name}", std::process::id()).into_bytes()
    }

    #[test]
    fn packets_and_descriptors_arrive_whole() {
        let name = unique("packets");
        let listener = listen(&name).unwrap();
        assert_eq!(listen(&name).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        assert_eq!(accept(listener.as_fd()).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        let client = connect(&name, Some(Duration::from_secs(5))).unwrap();
        let server = accept(listener.as_fd()).unwrap();
        let own = Credentials { process: std::process::id(), user: crate::sys::process::user() };
        assert_eq!(credentials(server.as_fd()).unwrap(), own);
        assert_eq!(credentials(client.as_fd()).unwrap(), own);
        assert!(matches!(process(server.as_fd(), own.process), Process::Is(_) | Process::MayBe(_)));

        send_with(client.as_fd(), b"hello", listener.as_fd()).unwrap();
        send(client.as_raw_fd(), b"again").unwrap();
        let mut buffer = [0; 16];
        let packet = receive_with(server.as_fd(), &mut buffer).unwrap();
        assert_eq!((packet.len, packet.descriptors.len(), packet.truncated), (5, 1, false));
        // A program that is executed by this one has none of them.
        for descriptor in [&listener, &client, &server, &packet.descriptors[0]] {
            assert!(is_closed_by_exec(descriptor));
        }
        assert_eq!(receive(server.as_fd(), &mut buffer).unwrap(), 5);
        assert_eq!(&buffer[..5], b"again");
        assert_eq!(receive(server.as_fd(), &mut buffer).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        send(client.as_raw_fd(), &[7; 20]).unwrap();
        assert!(receive_with(server.as_fd(), &mut buffer).unwrap().truncated);
        drop(client);
        assert_eq!(receive(server.as_fd(), &mut buffer).unwrap(), 0);
    }

    /// One that has not sent all, and whose owner wants to wait for that when it closes it.
    fn lingers() -> io::Result<(OwnedFd, std::net::TcpStream)> {
        use std::io::Write;

        let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
        let mut stream = std::net::TcpStream::connect(listener.local_addr()?)?;
        let (other, _) = listener.accept()?;
        stream.set_nonblocking(true)?;
        while stream.write(&[0; 1 << 16]).is_ok() {}
        let linger = libc::linger { l_onoff: 1, l_linger: 60 };
        set_option(stream.as_raw_fd(), libc::SO_LINGER, &linger)?;
        Ok((stream.into(), other))
    }

    #[test]
    fn descriptors_that_are_slow_to_close_hold_up_nobody() -> io::Result<()> {
        let name = unique("slow");
        let listener = listen(&name)?;
        let client = connect(&name, Some(Duration::from_secs(5)))?;
        let server = accept(listener.as_fd())?;
        let begin = Instant::now();
        let mut buffer = [0; 16];
        for with in [true, false] {
            let (slow, _other) = lingers()?;
            send_with(client.as_fd(), b"hello", slow.as_fd())?;
            drop(slow);
            let received = if with {
                receive_with(server.as_fd(), &mut buffer).map(|packet| (packet.len, packet.descriptors.len()))
            } else {
                receive(server.as_fd(), &mut buffer).map(|len| (len, 1))
            };
            assert_eq!(received?, (5, 1));
        }
        assert!(begin.elapsed() < Duration::from_secs(30), "it waits");
        // Where the system can refuse them no further ones come.
        refuse_descriptors(server.as_fd());
        if send_with(client.as_fd(), b"again", listener.as_fd()).is_ok() {
            assert_eq!(receive(server.as_fd(), &mut buffer)?, 5);
        }
        send(client.as_raw_fd(), b"again")?;
        assert_eq!(receive(server.as_fd(), &mut buffer)?, 5);
        Ok(())
    }

    #[test]
    fn closing_does_not_wait_for_descriptors_that_were_not_received() -> io::Result<()> {
        let name = unique("unreceived");
        let listener = listen(&name)?;
        for accepts in [true, false] {
            let client = connect(&name, Some(Duration::from_secs(5)))?;
            let server = accept(listener.as_fd())?;
            let (own, other) = if accepts { (server, client) } else { (client, server) };
            send(other.as_raw_fd(), b"")?;
            for packet in [&b""[..], b"hello"] {
                let (slow, _peer) = lingers()?;
                send_with(other.as_fd(), packet, slow.as_fd())?;
            }
            let begin = Instant::now();
            close(own);
            assert!(begin.elapsed() < Duration::from_secs(30), "it waits");
            assert_eq!(receive(other.as_fd(), &mut [0; 16])?, 0);
        }
        Ok(())
    }

    #[test]
    fn a_name_is_free_again_when_its_socket_is_closed() {
        let name = unique("free");
        assert_eq!(connect(&name, None).unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
        for _ in 0..2 {
            drop(listen(&name).unwrap());
        }
        assert_eq!(listen(&[b'x'; 108]).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }

    #[test]
    fn ringing_never_waits() {
        let name = unique("ring");
        let listener = listen(&name).unwrap();
        let client = connect(&name, None).unwrap();
        // Nobody reads: soon there is no room any more.
        for _ in 0..100_000 {
            ring(client.as_raw_fd());
        }
        drop(listener);
        ring(client.as_raw_fd());
    }

    #[test]
    fn sockets_leave_the_numbers_of_the_standard_streams_free() {
        let name = unique("standard");
        assert!(in_forked_child(|| {
            (0..=2).for_each(|number| _ = nix::unistd::close(number));
            listen(&name).is_ok_and(|socket| socket.as_raw_fd() > 2)
        }));
    }
}
