//! Cases 53 and 54: clients that say nonsense, and that overwrite all that they can write, while the server serves others.

use std::fs::{File, OpenOptions};
use std::io::IoSlice;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use intranode::{Address, Ended, Endpoint, EndpointError, Event, Peer, Refusal};
use libtest_mimic::Completion;
use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::socket::{
    AddressFamily, ControlMessage, MsgFlags, SockFlag, SockType, UnixAddr, connect, recv, send, sendmsg, socket,
};
use nix::unistd::{ftruncate, geteuid};

use super::child::{self, Child};
use super::forger::{BEGIN, listens};
use super::messages::{calls, start_echo};
use super::{Role, Test, repeats, unique};

pub(super) const TESTS: &[Test] = &[
    ("case_53_hellos_that_are_none", bad_hellos),
    ("case_53_random_hellos", random_hellos),
    ("case_54_cells_that_nobody_has_sent", bad_cells),
    ("case_54_messages_ahead_of_a_cell_that_nobody_has_sent", messages_ahead_of_a_bad_cell),
    ("case_54_a_client_that_overwrites_everything", scribbling),
    ("case_54_a_client_that_overwrites_what_it_has_sent_when_it_is_gone", overwriting_when_gone),
    ("packets_that_nobody_sends_end_the_connection", bad_packets),
    ("a_listener_that_says_nonsense", hostile_listener),
    ("a_listener_that_refuses_before_it_has_read", refused_unread),
];

pub(super) const ROLES: &[Role] = &[("scribbles", scribbles)];

/// The length of the memory of a connection, and where in it the cells of the side that connects are.
const MEMORY: usize = 4096 + 2 * (9728 + 64 * BUFFER) + 64;
pub(super) const BUFFER: usize = 32 << 10;
pub(super) const CELLS: u64 = 4096;

/// A connection without anything said.
pub(super) fn connect_as(user: u32, name: &str) -> Result<OwnedFd> {
    let address = UnixAddr::new_abstract(format!("intranode-{user}-{name}").as_bytes())?;
    let connection = socket(AddressFamily::Unix, SockType::SeqPacket, SockFlag::SOCK_CLOEXEC, None)?;
    connect(connection.as_raw_fd(), &address)?;
    Ok(connection)
}

fn connect_to(name: &str) -> Result<OwnedFd> {
    connect_as(geteuid().as_raw(), name)
}

/// The next packet from the other side; none if it closes, or has reset the connection after all packets.
pub(super) fn answer(connection: &OwnedFd) -> Result<Vec<u8>> {
    let mut entries = [PollFd::new(connection.as_fd(), PollFlags::POLLIN)];
    ensure!(poll(&mut entries, PollTimeout::from(20_000u16))? > 0, "no answer");
    let mut bytes = [0; 64];
    let len = match recv(connection.as_raw_fd(), &mut bytes, MsgFlags::empty()) {
        // What was sent before follows.
        Err(nix::Error::ECONNRESET) => recv(connection.as_raw_fd(), &mut bytes, MsgFlags::empty())?,
        len => len?,
    };
    Ok(bytes[..len].to_vec())
}

fn hello() -> [u8; 64] {
    let mut bytes = [0; 64];
    bytes[..8].copy_from_slice(b"intranod");
    bytes[8..12].copy_from_slice(&12u32.to_ne_bytes());
    bytes[24..32].copy_from_slice(&(MEMORY as u64).to_ne_bytes());
    bytes
}

pub(super) fn say_hello(connection: &OwnedFd, bytes: &[u8], files: &[&File]) -> Result<()> {
    let numbers: Vec<i32> = files.iter().map(|file| file.as_raw_fd()).collect();
    let control = ControlMessage::ScmRights(&numbers);
    let controls = if files.is_empty() { &[][..] } else { std::slice::from_ref(&control) };
    sendmsg::<UnixAddr>(
        connection.as_raw_fd(),
        &[IoSlice::new(bytes)],
        controls,
        MsgFlags::MSG_NOSIGNAL,
        None,
    )?;
    Ok(())
}

fn memory(len: usize, seals: SealFlag) -> Result<File> {
    let file = memfd_create(c"hostile", MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING)?;
    ftruncate(&file, i64::try_from(len)?)?;
    fcntl(&file, FcntlArg::F_ADD_SEALS(seals))?;
    Ok(file.into())
}

fn good_memory() -> Result<File> {
    memory(MEMORY, SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SEAL)
}

/// What an endpoint says that connects.
pub(super) fn say_good_hello(connection: &OwnedFd) -> Result<()> {
    say_hello(connection, &hello(), &[&good_memory()?])
}

const REFUSED: u8 = 2;
const VERSION: u8 = 3;
const NO_HELLO: u8 = 4;
const BAD_MEMORY: u8 = 5;

fn bad_hellos() -> Result<Completion> {
    let (server, address) = start_echo()?;
    let good = good_memory()?;
    let no_seals = memory(MEMORY, SealFlag::empty())?;
    let some_seals = memory(MEMORY, SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SEAL)?;
    let all = SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SEAL;
    let (short, long) = (memory(MEMORY - 1, all)?, memory(MEMORY + 4096, all)?);
    let null = File::open("/dev/null")?;
    let directory = File::open("/")?;
    let version = |version: u32| {
        let mut bytes = hello();
        bytes[8..12].copy_from_slice(&version.to_ne_bytes());
        bytes
    };
    let mut other_len = hello();
    other_len[24..32].copy_from_slice(&u64::MAX.to_ne_bytes());
    let mut reserved = hello();
    reserved[63] = 1;
    let mut flag = hello();
    flag[32] = 1;
    let longer = [&hello()[..], &[0]].concat();
    let refused: &[(&[u8], &[&File], u8)] = &[
        (b"x", &[], NO_HELLO),
        (&hello(), &[], NO_HELLO),
        (&hello(), &[&good, &good], NO_HELLO),
        (&hello(), &[&good; 4], NO_HELLO),
        (&hello(), &[&good; 100], NO_HELLO),
        (&hello()[..63], &[&good], NO_HELLO),
        (&longer, &[&good], NO_HELLO),
        (&[0; 64], &[&good], NO_HELLO),
        (&[0xFF; 5000], &[&good], NO_HELLO),
        (&reserved, &[&good], NO_HELLO),
        (&flag, &[&good], NO_HELLO),
        (&version(0), &[&good], VERSION),
        (&version(11), &[&good], VERSION),
        (&version(13), &[&good], VERSION),
        (&other_len, &[&good], BAD_MEMORY),
        (&hello(), &[&no_seals], BAD_MEMORY),
        (&hello(), &[&some_seals], BAD_MEMORY),
        (&hello(), &[&short], BAD_MEMORY),
        (&hello(), &[&long], BAD_MEMORY),
        (&hello(), &[&null], BAD_MEMORY),
        (&hello(), &[&directory], BAD_MEMORY),
    ];
    let before = super::faults::resources(server.pid())?;
    for (number, (bytes, files, why)) in refused.iter().enumerate() {
        let connection = connect_to(address.name())?;
        say_hello(&connection, bytes, files)?;
        let answer = answer(&connection)?;
        ensure!(answer == [REFUSED, *why], "hello {number}: {answer:?}");
    }
    // And one that is.
    let connection = connect_to(address.name())?;
    say_hello(&connection, &hello(), &[&good])?;
    ensure!(answer(&connection)? == [1, 0]);
    drop(connection);
    // Sealed memory that cannot be mapped for writing is refused, too.
    let read_only = memory(MEMORY, all & !SealFlag::F_SEAL_SEAL)?;
    fcntl(&read_only, FcntlArg::F_ADD_SEALS(SealFlag::F_SEAL_WRITE | SealFlag::F_SEAL_SEAL))?;
    let connection = connect_to(address.name())?;
    say_hello(&connection, &hello(), &[&read_only])?;
    ensure!(answer(&connection)?[0] == REFUSED);
    calls(&address, 20)?;
    super::faults::resources(server.pid())?.is_not_more_than(before)?;
    Ok(Completion::Completed)
}

fn random_hellos() -> Result<Completion> {
    let (server, address) = start_echo()?;
    let good = good_memory()?;
    for round in 0..repeats(300) {
        let connection = connect_to(address.name())?;
        let mut bytes = hello();
        for _ in 0..fastrand::usize(0..4) {
            bytes[fastrand::usize(0..64)] = fastrand::u8(..);
        }
        let len = if fastrand::bool() { 64 } else { fastrand::usize(1..=64) };
        let files = vec![&good; fastrand::usize(0..3)];
        say_hello(&connection, &bytes[..len], &files)?;
        // Some do not wait for the answer.
        if fastrand::bool() {
            let answer = answer(&connection)?;
            ensure!(matches!(answer[..], [1, 0] | [REFUSED, _]), "{answer:?}");
        }
        if round % 50 == 0 {
            calls(&address, 10)?;
        }
    }
    calls(&address, 100)?;
    ensure!(super::faults::resources(server.pid())?.descriptors < 30);
    Ok(Completion::Completed)
}

/// A server in this process, and a connection to it whose memory can be written here.
fn victim() -> Result<(Endpoint, OwnedFd, File)> {
    let name = unique();
    let mut server = Endpoint::listen(&name)?;
    let (connection, file, _) = intrude(&name, &mut server)?;
    Ok((server, connection, file))
}

/// A connection to a server of this process whose memory can be written here, and the peer that it is there.
pub(super) fn intrude(name: &str, server: &mut Endpoint) -> Result<(OwnedFd, File, Peer)> {
    let (connection, file) = (connect_to(name)?, good_memory()?);
    say_hello(&connection, &hello(), &[&file])?;
    let event = server.wait(Some(Duration::from_secs(10)))?;
    let Some(Event::Connected { peer }) = event else { bail!("{event:?}") };
    ensure!(answer(&connection)? == [1, 0]);
    Ok((connection, file, peer))
}

/// What has come of a client that is gone is not what it writes into the connection's memory later.
fn overwriting_when_gone() -> Result<Completion> {
    let (mut server, connection, file) = victim()?;
    let first = CELLS + 9728;
    file.write_all_at(&[b'x'; 4096], first)?;
    write_cell(&file, word(1, 4096), 1)?;
    drop(connection);
    let closed = |event| matches!(event, Some(Event::Closed { .. }));
    while !closed(server.wait(Some(Duration::from_secs(10)))?) {}
    file.write_all_at(&vec![b'y'; MEMORY - CELLS as usize], CELLS)?;
    let mut buffer = [0; 4096];
    let message = server.try_recv_unexpected(&mut buffer)?;
    ensure!(message.is_some_and(|message| message.bytes == 4096) && buffer == [b'x'; 4096]);
    ensure!(server.try_recv_unexpected(&mut buffer)?.is_none());
    Ok(Completion::Completed)
}

/// The word of the first cell: its turn, kind and length.
fn word(kind: u64, len: u64) -> u64 {
    1 << 40 | kind << 51 | len
}

fn write_cell(file: &File, word: u64, mask: u64) -> Result<()> {
    write_tagged(file, word, mask, 7)
}

fn write_tagged(file: &File, word: u64, mask: u64, tag: u64) -> Result<()> {
    write_cell_at(file, CELLS, word, mask, tag)
}

fn write_cell_at(file: &File, cell: u64, word: u64, mask: u64, tag: u64) -> Result<()> {
    file.write_all_at(&tag.to_ne_bytes(), cell + 8)?;
    file.write_all_at(&mask.to_ne_bytes(), cell + 16)?;
    file.write_all_at(&[b'x'; 40], cell + 24)?;
    Ok(file.write_all_at(&word.to_ne_bytes(), cell)?)
}

/// What is ahead of a cell that nobody sends can be received, also if all is taken in in one go.
fn messages_ahead_of_a_bad_cell() -> Result<Completion> {
    const TAG: u64 = 7;
    let (mut server, _connection, file) = victim()?;
    // The first one last: until it is there nothing is looked at. What follows is not believed, whatever it is.
    for (index, kind, len) in [(4, 1, 2), (3, 5, 1), (2, 1, 5), (1, 4, 3), (0, 1, 40)] {
        write_cell_at(&file, CELLS + 64 * index, word(kind, len), 0, TAG)?;
    }
    let violated = |event: &_| matches!(event, Some(Event::Closed { ended: Ended::Violated, .. }));
    let mut events = Vec::new();
    while !events.last().is_some_and(violated) {
        events.push(server.wait(Some(Duration::from_secs(10)))?);
        ensure!(events.last().is_some_and(Option::is_some), "{events:?}");
    }
    let lens = events.iter().filter_map(|event| match event {
        Some(Event::Message { bytes, .. }) => Some(*bytes),
        _ => None,
    });
    ensure!(lens.eq([40, 3, 5]), "{events:?}");
    let mut buffer = [0; 40];
    let first = server.try_recv_unexpected(&mut buffer)?.context("the first message")?;
    ensure!((first.tag, first.bytes, buffer) == (TAG, 40, [b'x'; 40]));
    ensure!(server.try_recv_expected(first.peer, TAG, &mut buffer)? == Some(3));
    let last = server.try_recv_unexpected(&mut buffer)?.context("the last message")?;
    ensure!((last.peer, last.bytes) == (first.peer, 5));
    ensure!(server.try_recv_unexpected(&mut buffer)?.is_none());
    Ok(Completion::Completed)
}

fn bad_cells() -> Result<Completion> {
    // First, that such a cell is a message at all.
    for (kind, len, mask) in [(1, 40, 0), (4, 3, 0), (1, 4096, 1 << 63), (4, 0, 1)] {
        let (mut server, _connection, file) = victim()?;
        write_cell(&file, word(kind, len), mask)?;
        let event = server.wait(Some(Duration::from_secs(10)))?;
        ensure!(matches!(event, Some(Event::Message { bytes, .. }) if bytes as u64 == len), "{event:?}");
    }
    for (kind, len, mask) in [
        (0, 1, 0),
        (2, 40, 0),
        (3, 40, 0),
        (5, 1, 0),
        (15, 1, 0),
        (1, 41, 0),
        (1, 65_535, 0),
        (4, (1 << 28) - 1, 0),
        (1, 4097, 1),
        (1, 8192, 3),
        (1, 100, 3),
        // Writes, of more than one buffer, and of more than a buffer has room for.
        (10, 100, 3),
        (10, BUFFER as u64 + 1, 1),
        // A request that is longer than a message.
        (5, 4097, 1),
        (1, 100, u64::MAX),
        (4, 65_535, 255),
        // Slots that hold more than they have room for.
        (9, 9, 0),
        (12, 15, 0),
    ] {
        let (mut server, connection, file) = victim()?;
        write_cell(&file, word(kind, len), mask)?;
        let event = server.wait(Some(Duration::from_secs(10)))?;
        ensure!(
            matches!(event, Some(Event::Closed { ended: Ended::Violated, .. })),
            "kind {kind}, {len} bytes, {mask:#x}: {event:?}"
        );
        ensure!(answer(&connection)?.is_empty());
    }
    // Also where they would be received straight from the channel.
    for (len, mask) in [(4097, 1), (100, 3)] {
        let (mut server, _connection, file) = victim()?;
        write_cell(&file, word(1, len), mask)?;
        let received = server.try_recv_unexpected(&mut [0; 8192])?;
        ensure!(received.is_none(), "{len} bytes, {mask:#x}: {received:?}");
        let event = server.wait(Some(Duration::from_secs(10)))?;
        ensure!(matches!(event, Some(Event::Closed { ended: Ended::Violated, .. })), "{event:?}");
    }
    // Writes that begin in the last bytes of their buffer, and end with it or behind it.
    for (len, ends_in_it) in [(128, true), (129, false)] {
        let (mut server, _connection, file) = victim()?;
        write_tagged(&file, word(10, len), 1, 255 << BEGIN)?;
        let event = server.wait(Some(Duration::from_millis(if ends_in_it { 50 } else { 10_000 })))?;
        let is_violated = matches!(event, Some(Event::Closed { ended: Ended::Violated, .. }));
        ensure!(is_violated != ends_in_it, "{len} bytes: {event:?}");
    }
    // In an open slot, and in the line of the pair, there may be a message, or none, and nothing else.
    let next_words = [(word(9, 2), true), (word(15, 0), true), (word(1, 2), false), (word(9, 9), false)];
    let places = [(OPEN, CELLS + 16), (IN_LINE, LINE + 16)];
    for ((next, is_good), (says_where, place)) in
        next_words.into_iter().flat_map(|word| places.map(|place| (word, place)))
    {
        let (mut server, _connection, file) = victim()?;
        write_cell(&file, word(9, says_where | 3), 0)?;
        let event = server.wait(Some(Duration::from_secs(10)))?;
        ensure!(matches!(event, Some(Event::Message { bytes: 3, .. })), "{event:?}");
        file.write_all_at(&next.to_ne_bytes(), place)?;
        let event = server.wait(Some(Duration::from_millis(if is_good { 50 } else { 10_000 })))?;
        let is_violated = matches!(event, Some(Event::Closed { ended: Ended::Violated, .. }));
        ensure!(is_violated != is_good, "{next:#x}: {event:?}");
        ensure!(next != word(9, 2) || matches!(event, Some(Event::Message { bytes: 2, .. })), "{event:?}");
    }
    Ok(Completion::Completed)
}

/// Says of a slot that another one follows in its cell.
const OPEN: u64 = 1 << 50;

/// Says of a slot that the next message is in the line of the pair.
const IN_LINE: u64 = 1 << 49;

/// Where that is in the file. The first message in it is in the second slot.
const LINE: u64 = CELLS + 8448;

fn bad_packets() -> Result<Completion> {
    for packet in [&[9][..], &[1, 0], &[2, 1], &[3, 0], &[0, 0], &[0; 8], &[0; 9], &[0; 5000]] {
        let (mut server, connection, _file) = victim()?;
        send(connection.as_raw_fd(), packet, MsgFlags::MSG_NOSIGNAL)?;
        let event = server.wait(Some(Duration::from_secs(10)))?;
        ensure!(matches!(event, Some(Event::Closed { ended: Ended::Violated, .. })), "{packet:?}: {event:?}");
    }
    // Bells without a message do no harm, however many; nor does memory that comes later.
    let (mut server, connection, file) = victim()?;
    while send(connection.as_raw_fd(), &[0], MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT).is_ok() {}
    ensure!(server.wait(Some(Duration::from_millis(50)))?.is_none());
    // Newer systems let nobody send it.
    let refused = say_hello(&connection, &[0], &[&file, &file]).err();
    ensure!(refused.is_none_or(|error| error.downcast_ref() == Some(&nix::Error::EPERM)));
    ensure!(server.wait(Some(Duration::from_millis(50)))?.is_none());
    write_cell(&file, word(1, 3), 0)?;
    send(connection.as_raw_fd(), &[0], MsgFlags::MSG_NOSIGNAL)?;
    let event = server.wait(Some(Duration::from_secs(10)))?;
    ensure!(matches!(event, Some(Event::Message { bytes: 3, .. })), "{event:?}");
    Ok(Completion::Completed)
}

/// Makes a few calls, and overwrites the memory of its connection, until it is killed or its connection is ended.
fn scribbles(args: &[String]) -> Result<()> {
    let mut random = fastrand::Rng::with_seed(args[1].parse()?);
    let own = OpenOptions::new().read(true).write(true).open("/proc/self/mem")?;
    let maps = || -> Result<Option<u64>> {
        let maps = std::fs::read_to_string("/proc/self/maps")?;
        let line = maps.lines().find(|line| line.contains("memfd:intranode"));
        Ok(line.and_then(|line| u64::from_str_radix(line.split('-').next()?, 16).ok()))
    };
    child::say("begins")?;
    let mut is_told = false;
    loop {
        let mut client = Endpoint::builder().timeout(Duration::from_millis(20)).client()?;
        let server = client.connect(&Address::local(&args[0])?)?;
        client.send_unexpected(server, 1, b"hello")?;
        let _ = client.recv_expected(server, 1, &mut [0; 5]);
        let start = maps()?.context("the connection's memory")?;
        for _ in 0..random.usize(1..2000) {
            let value = match random.u8(0..6) {
                0 => 0,
                1 => u64::MAX,
                2 => random.u64(..),
                // Near a cell's word, of a message's length or a part's, or a count.
                3 => {
                    random.u64(0..200) << 40
                        | random.u64(0..16) << 51
                        | random.u64(0..4) << 49
                        | random.u64(0..5000) << random.u32(0..5)
                }
                4 => 1 << random.u32(0..64),
                _ => random.u64(0..130),
            };
            // Mostly the words and cells of either channel, else anywhere.
            let offset = match random.u8(0..10) {
                0 => random.usize(0..MEMORY / 8),
                1 => random.usize(0..64),
                2..=5 => 512 + random.usize(0..1216),
                _ => 512 + (9728 + 64 * BUFFER) / 8 + random.usize(0..1216),
            };
            own.write_all_at(&value.to_ne_bytes(), start + 8 * offset as u64)?;
            if random.u8(0..50) == 0 {
                // What the library makes of it on this side is its own business.
                let _ = client.try_send_unexpected(server, random.u64(..), &vec![1; random.usize(0..4097)]);
            }
        }
        if !is_told && is_ended_by_the_other(&mut client) {
            child::say("the server has ended it")?;
            is_told = true;
        }
    }
}

/// Whether the other side has ended the connection, and not this one, which reads the same memory.
fn is_ended_by_the_other(client: &mut Endpoint) -> bool {
    // What it makes of the memory is many events at the most.
    let events = (0..100).map_while(|_| client.wait(Some(Duration::from_millis(20))).ok().flatten());
    let closed =
        events.filter_map(|event| if let Event::Closed { ended, .. } = event { Some(ended) } else { None });
    closed.take(1).any(|ended| matches!(ended, Ended::Left | Ended::Died))
}

fn scribbling() -> Result<Completion> {
    let (server, address) = start_echo()?;
    for round in 0..repeats(3) {
        let mut hostile = Vec::new();
        for number in 0..3 {
            let seed = (fastrand::u32(..) as usize + 3 * round + number).to_string();
            let mut client = Child::start("scribbles", &[address.name(), &seed])?;
            client.says("begins")?;
            hostile.push((client, seed));
        }
        for _ in 0..5 {
            calls(&address, 200)?;
        }
        for (mut client, seed) in hostile {
            client.says("the server has ended it").with_context(|| format!("seed {seed}"))?;
            let status = client.kill()?;
            use std::os::unix::process::ExitStatusExt;
            // It was killed here, or has given up since its own endpoint found nonsense: never by another signal.
            ensure!(status.signal().is_none_or(|signal| signal == 9), "{status}, seed {seed}");
        }
    }
    calls(&address, 200)?;
    ensure!(super::faults::resources(server.pid())?.descriptors < 200);
    Ok(Completion::Completed)
}

/// A client that has connected to a listener which is no endpoint, its peer, and the connection on the other side.
fn connected_client() -> Result<(Endpoint, Peer, OwnedFd)> {
    let (name, mut client) = (unique(), Endpoint::client()?);
    let listener = listens(&name)?;
    let peer = client.connect(&Address::local(&name)?)?;
    Ok((client, peer, listener.connection()?))
}

fn hostile_listener() -> Result<Completion> {
    let packets: [&[u8]; 5] = [&[9], &[2, 0], &[2, 77], &[0; 64], &[1, 1]];
    for packet in packets {
        let (mut client, peer, accepted) = connected_client()?;
        send(accepted.as_raw_fd(), packet, MsgFlags::MSG_NOSIGNAL)?;
        let error = client.recv_expected(peer, 1, &mut []);
        ensure!(matches!(error, Err(EndpointError::PeerGone { ended: Ended::Violated, .. })), "{error:?}");
    }
    Ok(Completion::Completed)
}

/// The system says of a connection first that not all was read, and then what was said over it.
fn refused_unread() -> Result<Completion> {
    let (mut client, peer, accepted) = connected_client()?;
    send(accepted.as_raw_fd(), &[REFUSED, VERSION], MsgFlags::MSG_NOSIGNAL)?;
    drop(accepted);
    let error = client.recv_expected(peer, 1, &mut []);
    let is_told = matches!(error, Err(EndpointError::PeerGone { ended: Ended::Refused(Refusal::Version), .. }));
    ensure!(is_told, "{error:?}");
    Ok(Completion::Completed)
}
