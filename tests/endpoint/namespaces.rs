//! Cases 63 and 52 in user namespaces: memory that the system does not let one side read, and users that have no number. And users that
//! take each other's names.

use std::io::IoSliceMut;
use std::os::fd::AsRawFd;

use anyhow::{Result, bail, ensure};
use intranode::{Address, Endpoint, EndpointError, Route};
use libtest_mimic::Completion;
use nix::errno::Errno;
use nix::sched::{CloneFlags, unshare};
use nix::sys::socket::{AddressFamily, Backlog, SockFlag, SockType, UnixAddr, bind, listen, socket};
use nix::sys::uio::{RemoteIoVec, process_vm_readv};
use nix::unistd::{Uid, getegid, geteuid, getppid, setuid};

use super::child::{self, Child};
use super::hostile;
use super::messages::start_echo;
use super::owner::{Client, shapes};
use super::{Role, Test, unique};

pub(super) const TESTS: &[Test] = &[
    ("case_63_an_owner_in_a_user_namespace", || staged(true, false)),
    ("case_63_a_client_in_a_user_namespace", || staged(false, true)),
    ("case_63_both_in_user_namespaces_of_their_own", || staged(true, true)),
    ("case_52_users_without_a_number_are_refused", without_a_number),
    ("case_52_nobody_listens_to_a_user_without_a_number", nobody_listens),
    ("case_52_another_user_has_the_name", name_of_another_user),
];

pub(super) const ROLES: &[Role] = &[
    ("tries a namespace", tries_a_namespace),
    ("makes shapes", makes_shapes),
    ("serves without a number", serves_without_a_number),
    ("connects without a number", connects_without_a_number),
    ("says hello as another user", says_hello_as_another_user),
    ("has the name of another user", has_the_name_of_another_user),
];

/// Takes this process, which has one thread, into a user namespace of its own, in which only its own user has a number.
pub(super) fn enter() -> Result<()> {
    let (user, group) = (geteuid(), getegid());
    enter_without_a_number()?;
    std::fs::write("/proc/self/setgroups", "deny")?;
    std::fs::write("/proc/self/uid_map", format!("{user} {user} 1"))?;
    std::fs::write("/proc/self/gid_map", format!("{group} {group} 1"))?;
    ensure!(geteuid() == user, "another user: {}", geteuid());
    Ok(())
}

/// The same, but not even its own user has one: it is shown as "nobody", as all others are.
fn enter_without_a_number() -> Result<()> {
    Ok(unshare(CloneFlags::CLONE_NEWUSER)?)
}

/// Says whether the test's process can be read from a namespace.
fn tries_a_namespace(_: &[String]) -> Result<()> {
    static BYTE: u8 = 7;
    if let Err(error) = enter() {
        return child::say(&format!("no user namespace: {error:#}"));
    }
    // This program is mapped elsewhere in the other process: whatever is found there, or is not, was not refused.
    let remote = [RemoteIoVec { base: &raw const BYTE as usize, len: 1 }];
    let read = process_vm_readv(getppid(), &mut [IoSliceMut::new(&mut [0])], &remote);
    match read {
        Err(Errno::EPERM) => child::say("refused"),
        other => child::say(&format!("another namespace's memory can be read: {other:?}")),
    }
}

/// Why there is no such namespace here, or no use in it.
fn missing() -> Result<Option<String>> {
    let line = Child::start("tries a namespace", &[])?.line()?;
    Ok((line != "refused").then_some(line))
}

/// With the name of an owner.
fn makes_shapes(args: &[String]) -> Result<()> {
    enter()?;
    shapes(&mut Client::of(&args[0])?)?;
    child::say("equal")
}

/// Gets and puts are the same where the system lets only one side read, or neither.
fn staged(owner_enters: bool, client_enters: bool) -> Result<Completion> {
    if let Some(why) = missing()? {
        return Ok(Completion::ignored_with(why));
    }
    let mut client = Client::start(if owner_enters { &["namespace"] } else { &[] })?;
    if client_enters {
        let mut other = Child::start("makes shapes", &[&client.name])?;
        other.says("equal")?;
        other.ends()?;
    } else {
        shapes(&mut client)?;
    }
    Ok(Completion::Completed)
}

fn serves_without_a_number(args: &[String]) -> Result<()> {
    enter_without_a_number()?;
    let mut server = Endpoint::listen(&args[0])?;
    child::say(&geteuid().to_string())?;
    while child::hear()?.is_some() {
        // It is not accepted, from any process.
        while let Some(event) = server.wait(Some(std::time::Duration::from_millis(100)))? {
            child::say(&format!("{event:?}"))?;
        }
        child::say("nobody")?;
    }
    Ok(())
}

/// With the user that the server believes to be, and its name.
fn says_hello_as_another_user(args: &[String]) -> Result<()> {
    setuid(Uid::from_raw(4321))?;
    let socket = hostile::connect_as(args[0].parse()?, &args[1])?;
    hostile::say_good_hello(&socket)?;
    child::say("hello")?;
    let answer = hostile::answer(&socket)?;
    ensure!(answer == [2, 2], "{answer:?}");
    child::say("refused")
}

/// Where nobody has a number all users look alike, and so none of them is this one.
fn without_a_number() -> Result<Completion> {
    if let Some(why) = missing()? {
        return Ok(Completion::ignored_with(why));
    }
    if !geteuid().is_root() {
        return Ok(Completion::ignored_with("only root can become another user"));
    }
    let name = unique();
    let mut server = Child::start("serves without a number", &[&name])?;
    let user = server.line()?;
    let mut other = Child::start("says hello as another user", &[&user, &name])?;
    other.says("hello")?;
    server.tell("who?")?;
    server.says("nobody")?;
    other.says("refused")?;
    other.ends()?;
    server.ends()?;
    Ok(Completion::Completed)
}

fn connects_without_a_number(args: &[String]) -> Result<()> {
    enter_without_a_number()?;
    let mut client = Endpoint::client()?;
    let address = Address::local(&args[0])?;
    let error = client.connect(&address);
    ensure!(matches!(error, Err(EndpointError::NobodyListens { .. })), "{error:?}");
    let address = address.with_remote("tcp://127.0.0.1:4000")?;
    ensure!(client.route(&address)? == Route::Remote("tcp://127.0.0.1:4000"));
    // Nor does it take one of its own kind for its own user: it may be anybody.
    let mut own = Endpoint::listen(&args[0])?;
    let own_address = own.address().expect("it listens").clone();
    let error = own.connect(&own_address);
    ensure!(matches!(error, Err(EndpointError::ForeignUser { .. })), "{error:?}");
    child::say("remote")
}

fn nobody_listens() -> Result<Completion> {
    if let Some(why) = missing()? {
        return Ok(Completion::ignored_with(why));
    }
    let (_server, address) = start_echo()?;
    let mut client = Child::start("connects without a number", &[address.name()])?;
    client.says("remote")?;
    client.ends()?;
    Ok(Completion::Completed)
}

/// Takes a name of this program's user, as another one can.
fn has_the_name_of_another_user(args: &[String]) -> Result<()> {
    let user = geteuid().as_raw();
    setuid(Uid::from_raw(65_534))?;
    let address = UnixAddr::new_abstract(format!("intranode-{user}-{}", args[0]).as_bytes())?;
    let listener = socket(AddressFamily::Unix, SockType::SeqPacket, SockFlag::SOCK_CLOEXEC, None)?;
    bind(listener.as_raw_fd(), &address)?;
    listen(&listener, Backlog::new(8)?)?;
    child::say("listens")?;
    while child::hear()?.is_some() {}
    Ok(())
}

fn name_of_another_user() -> Result<Completion> {
    if !geteuid().is_root() {
        return Ok(Completion::ignored_with("only root can become another user"));
    }
    let name = unique();
    let mut other = Child::start("has the name of another user", &[&name])?;
    other.says("listens")?;
    let address = Address::local(&name)?;
    let mut own = Endpoint::client()?;
    match own.connect(&address) {
        Err(EndpointError::ForeignUser { process, user: 65_534, .. }) => ensure!(process == other.pid()),
        connected => bail!("{connected:?}"),
    }
    let address = address.with_remote("tcp://127.0.0.1:4000")?;
    ensure!(own.route(&address)? == Route::Remote("tcp://127.0.0.1:4000"));
    // Nor is it said that an endpoint of this user has the name.
    match Endpoint::listen(&name) {
        Err(error @ EndpointError::NameTaken { .. }) => {
            ensure!(error.to_string().contains("another user's process"), "{error}");
        }
        listens => bail!("{listens:?}"),
    }
    drop(other);
    Ok(Completion::Completed)
}
