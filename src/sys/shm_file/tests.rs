use std::collections::HashSet;
use std::convert::Infallible;
use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::process::{self, Command};
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Instant, SystemTime};

use super::open::LastSeen;
use super::signature::PREAMBLE;
use super::*;
use crate::sys::testing::{Helper, LIMIT, in_forked_child, next_line, no_spawning, role, spawning};
#[cfg(target_os = "linux")]
use crate::sys::testing::{command, prepare};

const LEN: usize = 256 << 10;
const HELPER: &str = "sys::shm_file::tests::helper";

/// A name for this test only.
fn name(test: &str) -> String {
    format!("/intranode-test-{}-{test}", process::id())
}

fn shm(name: &str) -> PathBuf {
    Path::new(file::DIRECTORY).join(&name[1..])
}

/// Writes this process's id, which the tests have in place of a preamble.
fn write_pid(mapping: &Mapping) {
    word(mapping).store(process::id(), Ordering::Release);
}

fn word(mapping: &Mapping) -> &AtomicU32 {
    // SAFETY: a page-aligned word inside the mapping, accessed as an atomic only.
    unsafe { &*mapping.start().cast::<AtomicU32>() }
}

fn signature(preamble: &[u8]) -> u32 {
    u32::from_ne_bytes(preamble[..4].try_into().unwrap())
}

fn signed(_preamble: &[u8], len: u64) -> Result<(), u64> {
    if len == LEN as u64 { Ok(()) } else { Err(len) }
}

/// Any first word but zero is a signature here.
fn is_segment(preamble: &[u8]) -> bool {
    preamble.len() >= 4 && signature(preamble) != 0
}

fn request(name: &str) -> CreateRequest<'_> {
    CreateRequest { name, len: LEN, signature: b"new!", is_segment }
}

fn create_in(
    directory: &Path,
    name: &str,
    init: impl FnMut(&Mapping),
    mode: CreateMode,
) -> Result<Created, CreateError> {
    super::create_in(directory, request(name), init, &[mode])
}

fn create(name: &str, len: usize, init: impl FnMut(&Mapping)) -> Result<Created, CreateError> {
    super::create(CreateRequest { len, ..request(name) }, init)
}

fn open<E>(
    name: &str,
    validate: impl FnMut(&[u8], u64) -> Result<(), E>,
    deadline: Option<Instant>,
) -> Result<Mapping, OpenError<E>> {
    super::open(name, is_segment, validate, deadline, None)
}

fn in_time() -> Option<Instant> {
    Some(Instant::now() + LIMIT)
}

fn soon() -> Option<Instant> {
    Some(Instant::now() + Duration::from_millis(20))
}

fn create_signed(name: &str, mode: CreateMode) -> Result<Created, CreateError> {
    let _no_spawning = no_spawning();
    create_in(Path::new(file::DIRECTORY), name, write_pid, mode)
}

fn last_seen(name: &str) -> LastSeen {
    match open(name, signed, soon()) {
        Err(OpenError::TimedOut { last, .. }) => last,
        other => panic!("{other:?}"),
    }
}

/// Keeps the name and drops the lock, as if the creator had been killed.
fn abandon(created: Created) {
    std::mem::forget(created.link);
    drop(created.mapping);
}

const MODES: [CreateMode; 2] = [CreateMode::Tmpfile, CreateMode::Excl];

#[test]
fn a_created_segment_can_be_opened() {
    for mode in MODES {
        let name = name("open");
        let created = create_signed(&name, mode).unwrap();
        assert!(!created.reclaimed);
        assert_eq!(created.mapping.len(), LEN);
        let opened = open(&name, signed, in_time()).unwrap();
        assert_eq!(opened.len(), LEN);
        assert_eq!(word(&opened).load(Ordering::Acquire), process::id());
        word(&opened).store(77, Ordering::Relaxed);
        assert_eq!(word(&created.mapping).load(Ordering::Relaxed), 77);
        drop(created);
        assert!(!shm(&name).exists());
    }
}

#[test]
fn an_unsigned_file_is_not_touched() {
    let name = name("precious");
    let mut all_but_the_signature = vec![1; LEN];
    all_but_the_signature[..8].fill(0);
    for content in [b"precious".to_vec(), Vec::new(), vec![0; 100], vec![0; LEN], all_but_the_signature] {
        fs::write(shm(&name), &content).unwrap();
        let request = CreateRequest { is_segment: |bytes| bytes.starts_with(b"new!"), ..request(&name) };
        for mode in MODES {
            let _no_spawning = no_spawning();
            let error = super::create_in(Path::new(file::DIRECTORY), request, write_pid, &[mode]).unwrap_err();
            assert!(matches!(error, CreateError::Foreign { .. }), "{error:?}");
        }
        let error = super::open(&name, request.is_segment, signed, in_time(), None).unwrap_err();
        assert!(matches!(error, OpenError::Foreign { .. }), "{error:?}");
        assert_eq!(fs::read(shm(&name)).unwrap(), content);
        fs::remove_file(shm(&name)).unwrap();
    }
}

/// The file begins like a segment, and another program has locked all of it.
#[test]
fn a_signed_file_that_another_program_has_locked_is_not_touched() {
    let name = name("locked");
    fs::write(shm(&name), b"new!").unwrap();
    let owner = File::options().write(true).open(shm(&name)).unwrap();
    let _no_spawning = no_spawning();
    assert!(lock::claim_all_for_tests(&owner));
    for mode in MODES {
        let error = create_in(Path::new(file::DIRECTORY), &name, write_pid, mode).unwrap_err();
        assert!(matches!(error, CreateError::Contended { .. }), "{error:?}");
    }
    assert_eq!(fs::read(shm(&name)).unwrap(), b"new!");
    drop(owner);
    drop(create_in(Path::new(file::DIRECTORY), &name, write_pid, CreateMode::Tmpfile).unwrap());
    assert!(!shm(&name).exists());
}

/// The regions and drafts of a job.
fn other_files(name: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(file::DIRECTORY).unwrap().map(|entry| entry.unwrap());
    let kind = |entry: &fs::DirEntry| names::kind(name, entry.file_name().to_str()?);
    let is_other = |entry: &fs::DirEntry| matches!(kind(entry), Some(names::Kind::Region | names::Kind::Draft));
    entries.filter(is_other).map(|entry| entry.path()).collect()
}

#[test]
fn creating_a_segment_removes_the_regions_and_drafts_of_dead_processes() {
    let _no_spawning = no_spawning();
    let name = name("sweep");
    let other_job = format!("{name}2");
    let keep = |draft: Draft, name: &str| {
        let mut draft = draft;
        draft.publish(&shm(name)).unwrap();
        std::mem::forget(draft.close());
    };
    let draft = |at: u64, signature: &[u8]| {
        Draft::new(Path::new(file::DIRECTORY), &name, CreateMode::Tmpfile, signature, at).unwrap()
    };
    let trailer = |job: &str| signature::Trailer { at: 4096, pid: 1, job: job.to_owned() }.encode();
    keep(draft(4096, &trailer(&name)), &names::region(&name, 1));
    keep(draft(4096, &trailer(&name)), &names::draft(&name, 2));
    keep(draft(0, b"new!"), &names::draft(&name, 3));
    // Files that stay: another job's, unsigned ones, and a locked one.
    keep(draft(4096, &trailer(&other_job)), &names::region(&name, 4));
    keep(draft(0, b"new!"), &names::region(&name, 5));
    fs::write(shm(&names::region(&name, 6)), [0; 8192]).unwrap();
    fs::write(shm(&names::draft(&name, 7)), b"").unwrap();
    let mut live = draft(4096, &trailer(&name));
    live.publish(&shm(&names::region(&name, 8))).unwrap();
    assert_eq!(other_files(&name).len(), 8);
    assert!(create_in(Path::new(file::DIRECTORY), &name, write_pid, CreateMode::Excl).unwrap().reclaimed);
    let mut remaining = other_files(&name);
    remaining.sort();
    let expected = [names::draft(&name, 7), names::region(&name, 4), names::region(&name, 5)];
    let expected = expected.into_iter().chain([names::region(&name, 6), names::region(&name, 8)]);
    assert_eq!(remaining, expected.map(|name| shm(&name)).collect::<Vec<_>>());
    drop(live);
    other_files(&name).iter().for_each(|path| fs::remove_file(path).unwrap());
}

#[test]
fn the_file_is_private_and_fully_allocated() {
    use std::os::unix::fs::MetadataExt;
    for mode in MODES {
        let name = name("allocated");
        let _created = create_signed(&name, mode).unwrap();
        let metadata = fs::metadata(shm(&name)).unwrap();
        assert_eq!(metadata.mode() & 0o777, 0o600);
        assert!(metadata.blocks() * 512 >= LEN as u64);
    }
}

#[test]
fn the_name_never_refers_to_an_incomplete_segment() {
    for mode in MODES {
        let name = name("whole");
        let mut checked = false;
        let init = |mapping: &Mapping| {
            assert_eq!(last_seen(&name), LastSeen::Nothing);
            assert_eq!(other_files(&name).len(), usize::from(mode == CreateMode::Excl));
            checked = true;
            write_pid(mapping);
        };
        let created = create_in(Path::new(file::DIRECTORY), &name, init, mode).unwrap();
        assert!(shm(&name).exists());
        assert!(other_files(&name).is_empty());
        drop(created);
        assert!(checked);
    }
}

#[test]
fn unlinking_frees_the_name_and_keeps_the_memory() {
    let name = name("unlink");
    let mut first = create_signed(&name, CreateMode::Tmpfile).unwrap();
    let joined = open(&name, signed, in_time()).unwrap();
    first.link.unlink().unwrap();
    assert!(!shm(&name).exists());
    let second = create_signed(&name, CreateMode::Tmpfile).unwrap();
    assert!(!second.reclaimed);
    word(&second.mapping).store(2, Ordering::Relaxed);
    word(&first.mapping).store(1, Ordering::Relaxed);
    assert_eq!(word(&joined).load(Ordering::Relaxed), 1);
    // The name belongs to the second one now.
    first.link.unlink().unwrap();
    drop(first);
    assert!(shm(&name).exists());
    drop(second);
    assert!(!shm(&name).exists());
}

#[test]
fn a_name_that_refers_to_another_file_by_now_is_not_removed() {
    for mode in MODES {
        let name = name("replaced");
        let mut created = create_signed(&name, mode).unwrap();
        fs::remove_file(shm(&name)).unwrap();
        fs::write(shm(&name), "something else").unwrap();
        created.link.unlink().unwrap();
        assert_eq!(fs::read(shm(&name)).unwrap(), b"something else");
        drop(created);
        fs::remove_file(shm(&name)).unwrap();
    }
}

#[test]
fn a_live_name_is_refused_with_its_preamble() {
    for (first, second) in MODES.into_iter().flat_map(|first| MODES.map(|second| (first, second))) {
        let name = name("live");
        let created = create_signed(&name, first).unwrap();
        let error = create_signed(&name, second).unwrap_err();
        let CreateError::Live { preamble } = error else { panic!("{error:?}") };
        assert_eq!(preamble.len(), PREAMBLE);
        assert_eq!(signature(&preamble), process::id());
        open(&name, signed, in_time()).unwrap();
        drop(created);
        assert!(!shm(&name).exists());
    }
}

#[test]
fn the_name_of_a_killed_job_is_reclaimed() {
    for mode in MODES {
        let name = name("killed");
        let mut helper = Helper::start(HELPER, "rank");
        helper.send(&format!("create {name} 0"));
        assert_eq!(helper.answer(), format!("won {}", helper.pid()));
        // The helper's descriptor is closed: its mapping holds the lock.
        helper.send("descriptors");
        assert_eq!(helper.answer(), "none");
        let error = create_signed(&name, mode).unwrap_err();
        let CreateError::Live { preamble } = error else { panic!("{error:?}") };
        assert_eq!(signature(&preamble), helper.pid());
        open(&name, signed, in_time()).unwrap();
        helper.kill();
        assert!(shm(&name).exists());
        assert_eq!(last_seen(&name), LastSeen::Stale);
        let created = create_signed(&name, mode).unwrap();
        assert!(created.reclaimed);
        assert_eq!(word(&open(&name, signed, in_time()).unwrap()).load(Ordering::Acquire), process::id());
        drop(created);
        assert!(!shm(&name).exists());
    }
}

#[test]
fn open_waits_until_a_new_segment_replaces_a_stale_one() {
    let name = name("waiting");
    assert_eq!(last_seen(&name), LastSeen::Nothing);
    abandon(create_signed(&name, CreateMode::Tmpfile).unwrap());
    assert_eq!(last_seen(&name), LastSeen::Stale);
    let mut helper = Helper::start(HELPER, "rank");
    helper.send(&format!("open {name} 0"));
    helper.send("ready");
    let created = create_signed(&name, CreateMode::Tmpfile).unwrap();
    assert_eq!(helper.answer(), format!("joined {}", process::id()));
    drop(created);
}

#[test]
fn a_process_that_removes_a_stale_file_is_not_taken_for_a_live_job() {
    let name = name("reclaimer");
    abandon(create_signed(&name, CreateMode::Tmpfile).unwrap());
    let no_spawning = no_spawning();
    let reclaimer = file::open_existing(&shm(&name)).unwrap().unwrap();
    assert!(lock::reclaim(&reclaimer).unwrap());
    assert_eq!(last_seen(&name), LastSeen::Stale);
    let rival = thread::spawn({
        let name = name.clone();
        move || create_signed(&name, CreateMode::Tmpfile)
    });
    // It must wait until the reclaimer has unlinked the file and unlocked it.
    thread::sleep(20 * PAUSE);
    assert!(!rival.is_finished());
    fs::remove_file(shm(&name)).unwrap();
    drop((reclaimer, no_spawning));
    drop(rival.join().unwrap().unwrap());
}

#[test]
fn a_late_reclaimer_does_not_remove_the_new_file() {
    let name = name("slow");
    let path = shm(&name);
    abandon(create_signed(&name, CreateMode::Tmpfile).unwrap());
    let slow = file::open_existing(&path).unwrap().unwrap();
    let winner = create_signed(&name, CreateMode::Tmpfile).unwrap();
    assert!(winner.reclaimed);
    assert!(lock::reclaim(&slow).unwrap());
    assert!(!Identity::of(&slow).unwrap().remove(&path).unwrap());
    assert!(path.exists());
}

#[test]
fn reading_the_holder_does_not_lock() {
    let name = name("probe");
    abandon(create_signed(&name, CreateMode::Tmpfile).unwrap());
    let (one, other) = (
        file::open_existing(&shm(&name)).unwrap().unwrap(),
        file::open_existing(&shm(&name)).unwrap().unwrap(),
    );
    assert_eq!(lock::holder(&one).unwrap(), Holder::Nobody);
    assert!(lock::claim(&other).unwrap());
    assert_eq!(lock::holder(&one).unwrap(), Holder::Job);
    assert!(!lock::reclaim(&one).unwrap());
    drop(other);
    assert!(lock::reclaim(&one).unwrap());
    fs::remove_file(shm(&name)).unwrap();
}

#[test]
fn a_forked_child_does_not_keep_the_job_alive() {
    let name = name("fork");
    let mut helper = Helper::start(HELPER, "rank");
    helper.send(&format!("create {name} 0"));
    assert_eq!(helper.answer(), format!("won {}", helper.pid()));
    helper.send("fork");
    let answer = helper.answer();
    let child: i32 = answer.strip_prefix("forked ").unwrap().parse().unwrap();
    helper.kill();
    // SAFETY: checks a process that the helper started; no memory is involved.
    assert_eq!(unsafe { libc::kill(child, 0) }, 0, "the child lives on");
    let created = create_signed(&name, CreateMode::Tmpfile);
    // SAFETY: ends that process.
    unsafe { libc::kill(child, libc::SIGKILL) };
    assert!(created.unwrap().reclaimed);
}

#[test]
fn a_forked_child_unlinks_nothing() {
    let name = name("child");
    let mut created = Some(create_signed(&name, CreateMode::Tmpfile).unwrap());
    assert!(in_forked_child(|| {
        drop(created.take());
        true
    }));
    assert!(shm(&name).exists());
    drop(created);
    assert!(!shm(&name).exists());
}

/// FAULTS 17.
#[test]
fn of_many_racing_for_a_stale_name_one_wins_and_the_others_join_it() {
    const RACES: usize = 1000;
    let name = name("race");
    let mut creators: Vec<_> = (0..4).map(|_| Helper::start(HELPER, "rank")).collect();
    let mut joiners: Vec<_> = (0..2).map(|_| Helper::start(HELPER, "rank")).collect();
    let mut winners = HashSet::new();
    abandon(create_signed(&name, CreateMode::Tmpfile).unwrap());
    for race in 0..RACES {
        let start = SystemTime::now() + Duration::from_micros(500);
        let start = start.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_nanos();
        // In every fourth race two creators use the other mode.
        for (i, creator) in creators.iter_mut().enumerate() {
            let verb = if race % 4 == 0 && i < 2 { "exclusive" } else { "create" };
            creator.send(&format!("{verb} {name} {start}"));
        }
        joiners.iter_mut().for_each(|joiner| joiner.send(&format!("open {name} {start}")));
        let answers: Vec<_> = creators.iter().map(Helper::answer).collect();
        let won: Vec<_> = answers.iter().filter(|answer| answer.starts_with("won")).collect();
        assert_eq!(won.len(), 1, "race {race}: {answers:?}");
        let winner = won[0].strip_prefix("won ").unwrap();
        let others = answers.iter().filter(|answer| !answer.starts_with("won"));
        others.for_each(|answer| assert_eq!(*answer, format!("live {winner}"), "race {race}: {answers:?}"));
        for joiner in &joiners {
            assert_eq!(joiner.answer(), format!("joined {winner}"), "race {race}: {answers:?}");
        }
        winners.insert(u32::from_str(winner).unwrap());
        creators.iter_mut().chain(&mut joiners).for_each(|helper| helper.send("abandon"));
        creators.iter().chain(&joiners).for_each(|helper| assert_eq!(helper.answer(), "abandoned"));
        assert!(shm(&name).exists());
    }
    assert!(winners.len() > 1, "no race took place: {winners:?}");
    fs::remove_file(shm(&name)).unwrap();
    assert!(other_files(&name).is_empty());
}

/// FAULTS 16 and 12: after the creator was killed at any moment, the next one succeeds.
#[test]
fn a_creator_killed_at_any_moment_does_not_spoil_the_name() {
    const KILLS: u32 = 40;
    let name = name("moment");
    // How long creating takes without a kill, on this machine at this time.
    let mut undisturbed = Duration::ZERO;
    let mut reclaimed = 0;
    for kill in 0..=KILLS {
        let mode = MODES[kill as usize % 2];
        let mut helper = Helper::start(HELPER, "rank");
        helper.send("ready");
        assert_eq!(helper.answer(), "ready");
        let started = Instant::now();
        helper.send(&format!("{} {name} 0", if mode == CreateMode::Tmpfile { "create" } else { "exclusive" }));
        if kill == 0 {
            assert!(helper.answer().starts_with("won"));
            undisturbed = started.elapsed();
        } else {
            thread::sleep(2 * undisturbed * kill / KILLS);
        }
        helper.kill();
        let created = create_signed(&name, mode).unwrap();
        reclaimed += u32::from(created.reclaimed);
        open(&name, signed, in_time()).unwrap();
    }
    assert!(!shm(&name).exists());
    assert!(reclaimed > 1, "no kill came late enough to leave a signed file");
    // A kill between creating a file and signing it leaves an empty one, which nothing removes.
    for path in other_files(&name) {
        assert_eq!(fs::metadata(&path).unwrap().len(), 0, "{}", path.display());
        fs::remove_file(&path).unwrap();
    }
}

/// FAULTS 28.
#[test]
fn signals_do_not_disturb_the_allocation() {
    let name = name("signals");
    let mut helper = Helper::start(HELPER, "rank");
    helper.send(&format!("alarmed {name} 0"));
    let answer = helper.answer();
    let alarms: u32 = answer.strip_prefix("alarms ").unwrap_or_else(|| panic!("{answer}")).parse().unwrap();
    assert!(alarms > 10, "{alarms} alarms");
    assert!(!shm(&name).exists());
}

/// Some kernels undo an allocation that a signal interrupts; then only short steps succeed.
#[test]
#[cfg(target_os = "linux")]
fn steps_shrink_until_they_fit_between_two_signals() {
    let len = (40 << 20) + 12345;
    let (mut done, mut refused) = (0, 0);
    let result = file::in_steps(len, |offset, size| {
        assert_eq!(offset, done);
        if size > 100 << 10 {
            refused += 1;
            assert!(refused < 1000, "no progress");
            return Err(io::ErrorKind::Interrupted.into());
        }
        done += size;
        Ok(())
    });
    result.unwrap();
    assert_eq!(done, len);
    assert!(refused > 8);
}

/// FAULTS 19, in a mount namespace with a /dev/shm of its own.
#[test]
#[cfg(target_os = "linux")]
fn a_full_dev_shm_is_an_error_with_the_requested_size() {
    const UNABLE: i32 = 77;
    let script = format!("mount -t tmpfs -o size=64k none /dev/shm || exit {UNABLE}; exec \"$@\"");
    let test = command(HELPER, "small");
    let run = |flags: &str| {
        let mut command = Command::new("unshare");
        command.arg(flags).args(["sh", "-c", &script, "sh"]).arg(test.get_program());
        prepare(&mut command, HELPER, "small");
        let _spawning = spawning();
        command.output()
    };
    let output = match (run("-m"), run("-rm")) {
        (Ok(output), _) | (_, Ok(output)) if output.status.success() => output,
        (Ok(privileged), Ok(output)) if output.status.code() != Some(101) => {
            let reason = String::from_utf8_lossy(&privileged.stderr);
            return println!("SKIPPED: no mount namespace: {reason}");
        }
        (Ok(_), Ok(output)) => panic!("{}", String::from_utf8_lossy(&output.stderr)),
        (Err(error), _) | (_, Err(error)) => return println!("SKIPPED: unshare: {error}"),
    };
    assert!(String::from_utf8_lossy(&output.stderr).contains("full: 262144"), "{output:?}");
}

/// FAULTS 21.
#[test]
fn more_than_the_memory_limit_is_refused_before_anything_is_allocated() {
    let name = name("limit");
    let Some(headroom) = headroom::min_headroom() else {
        return println!("SKIPPED: no memory limit is known (the arithmetic has tests of its own)");
    };
    let len = headroom.bytes as usize + (4 << 30);
    let error = create(&name, len, |_| panic!("was allocated")).unwrap_err();
    assert!(matches!(error, CreateError::Memory { requested, .. } if requested == len), "{error:?}");
    assert!(!shm(&name).exists());
}

#[test]
fn other_kinds_of_files_are_refused_with_a_reason() {
    let name = name("odd");
    let path = shm(&name);
    let refusals = || {
        let created = create_signed(&name, CreateMode::Tmpfile).unwrap_err();
        let opened = open(&name, signed, in_time()).unwrap_err();
        match (created, opened) {
            (CreateError::Unusable(created), OpenError::Unusable(opened)) => [created, opened],
            other => panic!("{other:?}"),
        }
    };
    fs::create_dir(&path).unwrap();
    assert!(refusals().iter().all(|error| matches!(error, Unusable::NotRegular { .. })));
    fs::remove_dir(&path).unwrap();
    symlink("/etc/passwd", &path).unwrap();
    assert!(refusals().iter().all(|error| matches!(error, Unusable::NotRegular { .. })));
    fs::remove_file(&path).unwrap();
    let spawning = spawning();
    assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
    drop(spawning);
    assert!(refusals().iter().all(|error| matches!(error, Unusable::NotRegular { .. })));
    fs::remove_file(&path).unwrap();
    fs::write(&path, "x").unwrap();
    match std::os::unix::fs::chown(&path, Some(12345), None) {
        Ok(()) => {
            assert!(refusals().iter().all(|error| matches!(error, Unusable::Foreign { uid: 12345, .. })));
        }
        Err(error) => println!("SKIPPED: another user's file: {error}"),
    }
    fs::remove_file(&path).unwrap();
}

/// FAULTS 27: what `validate` refuses is an error, without waiting.
#[test]
fn a_truncated_segment_is_refused() {
    let name = name("short");
    let created = create_signed(&name, CreateMode::Tmpfile).unwrap();
    File::options().write(true).open(shm(&name)).unwrap().set_len(100).unwrap();
    let error = open(&name, signed, in_time()).unwrap_err();
    assert!(matches!(error, OpenError::Rejected(100)), "{error:?}");
    drop(created);
}

#[test]
fn invalid_names_are_refused() {
    let long = format!("/{}", "x".repeat(255));
    for name in ["", "x", "/", "/a/b", "//", "/.", "/..", "/a\0b", "../x", &long] {
        assert!(
            matches!(create_signed(name, CreateMode::Tmpfile), Err(CreateError::Unusable(Unusable::Name))),
            "{name}"
        );
        let opened = open(name, |_, _| Ok::<_, Infallible>(()), in_time());
        assert!(matches!(opened, Err(OpenError::Unusable(Unusable::Name))), "{name}");
    }
}

/// What the other processes of these tests run: one command a line, one answer a line.
#[test]
#[ignore = "other tests run it in a process of its own"]
fn helper() {
    match role().as_deref() {
        Some("rank") => serve(),
        Some("small") => match create_signed(&name("small"), CreateMode::Tmpfile) {
            Err(CreateError::NoSpace { requested, .. }) => {
                assert_eq!(fs::read_dir(file::DIRECTORY).unwrap().count(), 0);
                let exclusive = create_signed(&name("small"), CreateMode::Excl).unwrap_err();
                assert!(matches!(exclusive, CreateError::NoSpace { .. }));
                assert_eq!(fs::read_dir(file::DIRECTORY).unwrap().count(), 0);
                eprintln!("full: {requested}");
            }
            other => panic!("{other:?}"),
        },
        other => println!("not for running alone: {other:?}"),
    }
}

fn serve() {
    let mut kept = None;
    let mut joined = None;
    while let Some(line) = next_line() {
        let words: Vec<_> = line.split(' ').collect();
        match words[..] {
            ["ready"] => eprintln!("ready"),
            [verb @ ("create" | "exclusive"), name, start] => {
                await_start(start);
                match create_signed(name, if verb == "create" { CreateMode::Tmpfile } else { CreateMode::Excl })
                {
                    Ok(created) => {
                        kept = Some(created);
                        eprintln!("won {}", process::id());
                    }
                    Err(CreateError::Live { preamble }) => eprintln!("live {}", signature(&preamble)),
                    Err(error) => eprintln!("{error}"),
                }
            }
            ["open", name, start] => {
                await_start(start);
                match open(name, signed, in_time()) {
                    Ok(mapping) => {
                        eprintln!("joined {}", word(&mapping).load(Ordering::Acquire));
                        joined = Some(mapping);
                    }
                    Err(error) => eprintln!("{error}"),
                }
            }
            ["abandon"] => {
                if let Some(created) = kept.take() {
                    abandon(created);
                }
                joined = None;
                eprintln!("abandoned");
            }
            ["descriptors"] => eprintln!("{}", if has_descriptor() { "some" } else { "none" }),
            ["fork"] => eprintln!("forked {}", fork_sleeper()),
            ["alarmed", name, _] => eprintln!("{}", alarmed(name)),
            _ => eprintln!("unknown command {line:?}"),
        }
    }
    drop((kept, joined));
}

fn await_start(start: &str) {
    let start = SystemTime::UNIX_EPOCH + Duration::from_nanos(start.parse().unwrap());
    while SystemTime::now() < start {
        thread::yield_now();
    }
}

/// Whether a descriptor of this process refers to a file in the directory of segments.
fn has_descriptor() -> bool {
    let descriptors = fs::read_dir("/proc/self/fd").unwrap();
    descriptors
        .filter_map(|entry| fs::read_link(entry.unwrap().path()).ok())
        .any(|target| target.starts_with(file::DIRECTORY))
}

/// A child that only sleeps, for the limit at most.
fn fork_sleeper() -> i32 {
    // SAFETY: the child only sleeps and ends.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        // SAFETY: no memory is involved.
        unsafe { libc::sleep(LIMIT.as_secs() as u32) };
        // SAFETY: ends the child.
        unsafe { libc::_exit(0) };
    }
    pid
}

/// Creates large segments in a thread that gets a signal about every 100 µs.
fn alarmed(name: &str) -> String {
    static ALARMS: AtomicU32 = AtomicU32::new(0);
    extern "C" fn count(_signal: libc::c_int) {
        ALARMS.fetch_add(1, Ordering::Relaxed);
    }
    let handler = count as extern "C" fn(libc::c_int);
    // SAFETY: a plain structure, for which zeros are valid: no flags, so that system calls are interrupted.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler as libc::sighandler_t;
    // SAFETY: the handler only increments an atomic.
    assert_eq!(unsafe { libc::sigaction(libc::SIGALRM, &raw const action, std::ptr::null_mut()) }, 0);
    // SAFETY: no memory is involved.
    let thread = unsafe { libc::pthread_self() };
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                // SAFETY: the scope's thread lives as long as this one.
                unsafe { libc::pthread_kill(thread, libc::SIGALRM) };
                thread::sleep(Duration::from_micros(100));
            }
        });
        let mut failures = (0..8).filter_map(|_| {
            let created = create(name, 64 << 20, write_pid);
            let opened = open(name, |_, _| Ok::<_, Infallible>(()), in_time());
            (created.is_err() || opened.is_err()).then(|| format!("{created:?} {opened:?}"))
        });
        let failure = failures.next();
        done.store(true, Ordering::Relaxed);
        failure.unwrap_or_else(|| format!("alarms {}", ALARMS.load(Ordering::Relaxed)))
    })
}
