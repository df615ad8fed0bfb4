//! A stranger that connects to an endpoint, says anything, and writes anything into the memory of its connection: the endpoint
//! refuses it, or ends the connection, or takes what it has written for messages; and it still serves another client.

use std::fs::File;
use std::io::IoSlice;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicUsize, Ordering};

use intranode::{Access, Endpoint, EndpointError, Event, Registration};
use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::socket::{
    AddressFamily, ControlMessage, MsgFlags, SockFlag, SockType, UnixAddr, connect, send, sendmsg, socket,
};
use nix::unistd::{ftruncate, geteuid};

use super::input::Input;

/// The length of the memory of a connection, in bytes, and of what is before the first channel.
const MEMORY: usize = CHANNELS + 2 * CHANNEL + 64;
const CHANNELS: usize = 4096;

/// The kind of a cell whose bytes are written to memory.
const WRITE: u8 = 10;

/// The length of a channel: cells and words, and 64 buffers.
const CHANNEL: usize = WORDS + 64 * (32 << 10);
const WORDS: usize = 9728;

/// The input: a hello, what comes with it, and then steps. Returns whether the endpoint has accepted the connection.
pub fn run(data: &[u8]) -> bool {
    run_and_look(data).0
}

/// Whether the input is a stranger's that puts something else into the memory that is shared.
pub fn writes(data: &[u8]) -> bool {
    run_and_look(data).1
}

fn run_and_look(data: &[u8]) -> (bool, bool) {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let name = format!("fuzz-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    let mut server = Endpoint::builder().max_peers(8).listen(&name).expect("a name of its own");
    let memory = server.share(vec![vec![1; 5000].into(), vec![2; 3000].into()], Access::ReadWrite);
    let mut input = Input::new(data);
    let (connection, file) = connect_with(&mut input, &name);
    let accepted = matches!(server.poll().expect("no error"), Some(Event::Connected { .. }));
    while !input.is_empty() {
        step(&mut input, &connection, &file, &memory);
        if input.byte() & 1 == 1 {
            serve(&mut server);
        }
    }
    serve(&mut server);
    check_served(&mut server);
    let buffers = server.revoke(memory).expect("its own");
    assert_eq!((buffers.len(), buffers[0].len(), buffers[1].len()), (2, 5000, 3000));
    let is_written =
        buffers.iter().zip([1, 2]).any(|(buffer, before)| buffer.iter().any(|byte| *byte != before));
    (accepted, is_written)
}

/// Says a hello, or something like it.
fn connect_with(input: &mut Input<'_>, name: &str) -> (OwnedFd, File) {
    let address =
        UnixAddr::new_abstract(format!("intranode-{}-{name}", geteuid()).as_bytes()).expect("it fits");
    let connection =
        socket(AddressFamily::Unix, SockType::SeqPacket, SockFlag::SOCK_CLOEXEC, None).expect("a socket");
    connect(connection.as_raw_fd(), &address).expect("somebody listens");
    let mut hello = [0; 64];
    hello[..8].copy_from_slice(b"intranod");
    hello[8..12].copy_from_slice(&12u32.to_ne_bytes());
    hello[24..32].copy_from_slice(&(MEMORY as u64).to_ne_bytes());
    // Three bits each: changes of the hello, and of what comes with it; mostly none.
    let form = input.byte();
    for _ in 0..form & 3 {
        let at = input.byte() as usize % 64;
        hello[at] ^= input.byte();
    }
    let len = if form & 4 == 0 { 64 } else { 1 + input.byte() as usize % 64 };
    let all = SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SEAL;
    let seals = if form & 8 == 0 { all } else { SealFlag::from_bits_truncate(input.byte().into()) & all };
    let bytes = if form & 16 == 0 { MEMORY } else { input.number() as usize % (2 * MEMORY) };
    let count = if form & 32 == 0 { 1 } else { input.byte() as usize % 8 };
    let file = memfd_create(c"fuzz", MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING).expect("memory");
    ftruncate(&file, bytes as i64).expect("it is not sealed yet");
    fcntl(&file, FcntlArg::F_ADD_SEALS(seals)).expect("it is not sealed yet");
    let numbers = vec![file.as_raw_fd(); count];
    let control = [ControlMessage::ScmRights(&numbers)];
    let control = if count == 0 { &[][..] } else { &control[..] };
    let part = [IoSlice::new(&hello[..len])];
    sendmsg::<UnixAddr>(connection.as_raw_fd(), &part, control, MsgFlags::MSG_NOSIGNAL, None)
        .expect("there is room");
    (connection, file.into())
}

/// Writes a word or a cell, or sends a packet.
fn step(input: &mut Input<'_>, connection: &OwnedFd, file: &File, memory: &Registration) {
    let write = |bytes: &[u8], at: usize| {
        if at + bytes.len() <= MEMORY {
            // A file that is shorter, or another one, is nobody's memory.
            let _ = file.write_all_at(bytes, at as u64);
        }
    };
    match input.byte() % 4 {
        0 => write(&input.number().to_ne_bytes(), 8 * (input.number() as usize % (MEMORY / 8))),
        1 => {
            // The words and cells of either direction.
            let channel = CHANNELS + CHANNEL * usize::from(input.byte() & 1);
            write(&input.number().to_ne_bytes(), channel + 8 * (input.number() as usize % (WORDS / 8)));
        }
        2 => {
            // A cell of the first lap, with a request that is nearly right.
            let (cell, kind, len) = (input.byte() as usize % 4, input.byte() & 15, input.number() & 0x1FFF);
            let mask = if len <= 40 { input.number() } else { 1 };
            let at = CHANNELS + 64 * cell;
            let mut request = [0; 40];
            request[..8].copy_from_slice(&u64::from(input.byte() % 6).to_ne_bytes());
            request[8..16].copy_from_slice(&memory.handle().to_bytes()[..8]);
            request[16..24].copy_from_slice(&input.number().to_ne_bytes());
            request[24..32].copy_from_slice(&input.number().to_ne_bytes());
            request[32..40].copy_from_slice(&input.number().to_ne_bytes());
            if kind == WRITE {
                // It begins with the key.
                request.rotate_left(8);
            }
            write(&input.number().to_ne_bytes(), at + 8);
            write(&mask.to_ne_bytes(), at + 16);
            write(&request, at + 24);
            write(&request, CHANNELS + WORDS);
            write(&(1 << 40 | u64::from(kind) << 51 | len).to_ne_bytes(), at);
        }
        _ => {
            let packet: Vec<u8> = (0..input.byte() % 10).map(|_| input.byte()).collect();
            // It may have been closed, or be full.
            let _ =
                send(connection.as_fd().as_raw_fd(), &packet, MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT);
        }
    }
}

/// Takes in all that has come, and receives it.
fn serve(server: &mut Endpoint) {
    let mut buffer = [0; Endpoint::MAX_MESSAGE_BYTES];
    loop {
        let mut expected = Vec::new();
        // However much a stranger writes, a turn comes to an end.
        for _ in 0..200 {
            match server.poll().expect("no error") {
                Some(Event::Message { peer, expected: true, tag, bytes }) => expected.push((peer, tag, bytes)),
                Some(_) => {}
                None => break,
            }
        }
        for (peer, tag, bytes) in expected {
            match server.try_recv_expected(peer, tag, &mut buffer) {
                Ok(received) => assert_eq!(received, Some(bytes)),
                Err(EndpointError::PeerGone { .. } | EndpointError::UnknownPeer { .. }) => {}
                Err(error) => panic!("{error:?}"),
            }
        }
        while let Some(message) = server.try_recv_unexpected(&mut buffer).expect("no error") {
            assert!(message.bytes <= buffer.len());
            // It may be gone, or have no room.
            let _ = server.try_send_expected(message.peer, message.tag, &buffer[..message.bytes]);
        }
        if server.arm().expect("no error") == intranode::Armed::Sleep {
            return;
        }
    }
}

/// Another client is served.
fn check_served(server: &mut Endpoint) {
    let mut client = Endpoint::client().expect("descriptors");
    let peer = client.connect(server.address().expect("it listens")).expect("there is room");
    let data = [0xA5; 100];
    client.send_unexpected(peer, 77, &data).expect("it is connected");
    let mut buffer = [0; Endpoint::MAX_MESSAGE_BYTES];
    loop {
        let message = server.recv_unexpected(&mut buffer).expect("a message");
        if message.tag == 77 && buffer[..message.bytes] == data {
            server.send_expected(message.peer, 78, &data).expect("it is connected");
            match client.try_recv_expected(peer, 78, &mut [0; 100]).expect("no error") {
                Some(bytes) => return assert_eq!(bytes, 100),
                // The stranger has sent the same.
                None => continue,
            }
        }
    }
}
