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
use crate::sys::testing::{Helper, LIMIT, in_forked_child, nothing_starts, role, starting, told};
#[cfg(target_os = "linux")]
use crate::sys::testing::{command, prepare};

const LEN: usize = 256 << 10;
const HELPER: &str = "sys::shm_file::tests::helper";

/// A name that no other test uses.
fn name(test: &str) -> String {
    format!("/intranode-test-{}-{test}", process::id())
}

fn shm(name: &str) -> PathBuf {
    Path::new(file::DIRECTORY).join(&name[1..])
}

/// Writes this process's id: what the tests have in place of a header.
fn sign(mapping: &Mapping) {
    word(mapping).store(process::id(), Ordering::Release);
}

fn word(mapping: &Mapping) -> &AtomicU32 {
    // SAFETY: a page-aligned word inside the mapping, used as an atomic only.
    unsafe { &*mapping.start().cast::<AtomicU32>() }
}

fn signature(preamble: &[u8]) -> u32 {
    u32::from_ne_bytes(preamble[..4].try_into().unwrap())
}

fn signed(_preamble: &[u8], len: u64) -> Result<(), u64> {
    if len == LEN as u64 { Ok(()) } else { Err(len) }
}

/// Any bytes but zeros are a signature here.
fn is_segment(preamble: &[u8]) -> bool {
    preamble.len() >= 4 && signature(preamble) != 0
}

fn is_named(name: &str) -> CreateRequest<'_> {
    CreateRequest { name, len: LEN, signature: b"new!", is_segment }
}

fn create_in(
    directory: &Path,
    name: &str,
    init: impl FnMut(&Mapping),
    way: CreateMode,
) -> Result<Created, CreateError> {
    super::create_in(directory, is_named(name), init, &[way])
}

fn create(name: &str, len: usize, init: impl FnMut(&Mapping)) -> Result<Created, CreateError> {
    super::create(CreateRequest { len, ..is_named(name) }, init)
}

fn open<E>(
    name: &str,
    validate: impl FnMut(&[u8], u64) -> Result<(), E>,
    deadline: Option<Instant>,
) -> Result<Mapping, OpenError<E>> {
    super::open(name, is_segment, validate, deadline)
}

fn in_time() -> Option<Instant> {
    Some(Instant::now() + LIMIT)
}

fn soon() -> Option<Instant> {
    Some(Instant::now() + Duration::from_millis(20))
}

fn create_signed(name: &str, way: CreateMode) -> Result<Created, CreateError> {
    let _nothing_starts = nothing_starts();
    create_in(Path::new(file::DIRECTORY), name, sign, way)
}

fn last_seen(name: &str) -> LastSeen {
    match open(name, signed, soon()) {
        Err(OpenError::TimedOut { last, .. }) => last,
        other => panic!("{other:?}"),
    }
}

/// As if the creator had been killed: the name stays, the lock goes.
fn abandon(created: Created) {
    std::mem::forget(created.link);
    drop(created.mapping);
}

const WAYS: [CreateMode; 2] = [CreateMode::Tmpfile, CreateMode::Excl];

#[test]
fn what_one_makes_another_opens() {
    for way in WAYS {
        let name = name("open");
        let created = create_signed(&name, way).unwrap();
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

/// Whatever it is that a job has not signed: it may be anything of anybody's.
#[test]
fn a_file_of_another_program_is_not_touched() {
    let name = name("precious");
    let mut all_but_the_signature = vec![1; LEN];
    all_but_the_signature[..8].fill(0);
    for content in [b"precious".to_vec(), Vec::new(), vec![0; 100], vec![0; LEN], all_but_the_signature] {
        fs::write(shm(&name), &content).unwrap();
        let wanted = CreateRequest { is_segment: |bytes| bytes.starts_with(b"new!"), ..is_named(&name) };
        for way in WAYS {
            let _nothing_starts = nothing_starts();
            let error = super::create_in(Path::new(file::DIRECTORY), wanted, sign, &[way]).unwrap_err();
            assert!(matches!(error, CreateError::Foreign { .. }), "{error:?}");
        }
        let error = super::open(&name, wanted.is_segment, signed, in_time()).unwrap_err();
        assert!(matches!(error, OpenError::Foreign { .. }), "{error:?}");
        assert_eq!(fs::read(shm(&name)).unwrap(), content);
        fs::remove_file(shm(&name)).unwrap();
    }
}

/// One that begins like a job's and that another program has locked, which uses locks in its own way.
#[test]
fn a_locked_file_is_not_touched() {
    let name = name("locked");
    fs::write(shm(&name), b"new!").unwrap();
    let owner = File::options().write(true).open(shm(&name)).unwrap();
    let _nothing_starts = nothing_starts();
    assert!(lock::claim_all_for_tests(&owner));
    for way in WAYS {
        let error = create_in(Path::new(file::DIRECTORY), &name, sign, way).unwrap_err();
        assert!(matches!(error, CreateError::Contended { .. }), "{error:?}");
    }
    assert_eq!(fs::read(shm(&name)).unwrap(), b"new!");
    drop(owner);
    drop(create_in(Path::new(file::DIRECTORY), &name, sign, CreateMode::Tmpfile).unwrap());
    assert!(!shm(&name).exists());
}

/// The files of a job beside its segment: parts, and what is still being made.
fn beside(name: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(file::DIRECTORY).unwrap().map(|entry| entry.unwrap());
    let kind = |entry: &fs::DirEntry| names::kind(name, entry.file_name().to_str()?);
    let is_beside = |entry: &fs::DirEntry| matches!(kind(entry), Some(names::Kind::Part | names::Kind::Draft));
    entries.filter(is_beside).map(|entry| entry.path()).collect()
}

#[test]
fn what_dead_processes_have_left_beside_a_segment_goes_with_it() {
    let _nothing_starts = nothing_starts();
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
    keep(draft(4096, &trailer(&name)), &names::part(&name, 1));
    keep(draft(4096, &trailer(&name)), &names::draft(&name, 2));
    keep(draft(0, b"new!"), &names::draft(&name, 3));
    // These are not the job's, or not provably, or somebody has them.
    keep(draft(4096, &trailer(&other_job)), &names::part(&name, 4));
    keep(draft(0, b"new!"), &names::part(&name, 5));
    fs::write(shm(&names::part(&name, 6)), [0; 8192]).unwrap();
    fs::write(shm(&names::draft(&name, 7)), b"").unwrap();
    let mut live = draft(4096, &trailer(&name));
    live.publish(&shm(&names::part(&name, 8))).unwrap();
    assert_eq!(beside(&name).len(), 8);
    assert!(create_in(Path::new(file::DIRECTORY), &name, sign, CreateMode::Excl).unwrap().reclaimed);
    let mut left = beside(&name);
    left.sort();
    let expected = [names::draft(&name, 7), names::part(&name, 4), names::part(&name, 5)];
    let expected = expected.into_iter().chain([names::part(&name, 6), names::part(&name, 8)]);
    assert_eq!(left, expected.map(|name| shm(&name)).collect::<Vec<_>>());
    drop(live);
    beside(&name).iter().for_each(|path| fs::remove_file(path).unwrap());
}

#[test]
fn it_is_private_to_the_user_and_has_all_its_memory() {
    use std::os::unix::fs::MetadataExt;
    for way in WAYS {
        let name = name("allocated");
        let _created = create_signed(&name, way).unwrap();
        let metadata = fs::metadata(shm(&name)).unwrap();
        assert_eq!(metadata.mode() & 0o777, 0o600);
        assert!(metadata.blocks() * 512 >= LEN as u64);
    }
}

#[test]
fn the_name_never_shows_a_half_made_segment() {
    for way in WAYS {
        let name = name("whole");
        let mut looked = false;
        let init = |mapping: &Mapping| {
            assert_eq!(last_seen(&name), LastSeen::Nothing);
            assert_eq!(beside(&name).len(), usize::from(way == CreateMode::Excl));
            looked = true;
            sign(mapping);
        };
        let created = create_in(Path::new(file::DIRECTORY), &name, init, way).unwrap();
        assert!(shm(&name).exists());
        assert!(beside(&name).is_empty());
        drop(created);
        assert!(looked);
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
    // The name is the second one's now.
    first.link.unlink().unwrap();
    drop(first);
    assert!(shm(&name).exists());
    drop(second);
    assert!(!shm(&name).exists());
}

#[test]
fn a_name_that_is_another_files_by_now_is_left_alone() {
    for way in WAYS {
        let name = name("replaced");
        let mut created = create_signed(&name, way).unwrap();
        fs::remove_file(shm(&name)).unwrap();
        fs::write(shm(&name), "something else").unwrap();
        created.link.unlink().unwrap();
        assert_eq!(fs::read(shm(&name)).unwrap(), b"something else");
        drop(created);
        fs::remove_file(shm(&name)).unwrap();
    }
}

#[test]
fn a_live_name_is_refused_and_its_holder_shown() {
    for (first, second) in WAYS.into_iter().flat_map(|first| WAYS.map(|second| (first, second))) {
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
fn what_a_killed_job_has_left_is_reclaimed() {
    for way in WAYS {
        let name = name("killed");
        let mut helper = Helper::start(HELPER, "rank");
        helper.tell(&format!("create {name} 0"));
        assert_eq!(helper.answer(), format!("won {}", helper.pid()));
        // The helper's descriptor is closed: what holds the lock is the mapping.
        helper.tell("descriptors");
        assert_eq!(helper.answer(), "none");
        let error = create_signed(&name, way).unwrap_err();
        let CreateError::Live { preamble } = error else { panic!("{error:?}") };
        assert_eq!(signature(&preamble), helper.pid());
        open(&name, signed, in_time()).unwrap();
        helper.kill();
        assert!(shm(&name).exists());
        assert_eq!(last_seen(&name), LastSeen::Stale);
        let created = create_signed(&name, way).unwrap();
        assert!(created.reclaimed);
        assert_eq!(word(&open(&name, signed, in_time()).unwrap()).load(Ordering::Acquire), process::id());
        drop(created);
        assert!(!shm(&name).exists());
    }
}

#[test]
fn who_comes_first_waits_for_the_new_segment_behind_a_stale_one() {
    let name = name("patient");
    assert_eq!(last_seen(&name), LastSeen::Nothing);
    abandon(create_signed(&name, CreateMode::Tmpfile).unwrap());
    assert_eq!(last_seen(&name), LastSeen::Stale);
    let mut helper = Helper::start(HELPER, "rank");
    helper.tell(&format!("open {name} 0"));
    helper.tell("ready");
    let created = create_signed(&name, CreateMode::Tmpfile).unwrap();
    assert_eq!(helper.answer(), format!("joined {}", process::id()));
    drop(created);
}

#[test]
fn who_removes_a_stale_file_is_not_taken_for_a_live_job() {
    let name = name("reclaimer");
    abandon(create_signed(&name, CreateMode::Tmpfile).unwrap());
    let nothing_starts = nothing_starts();
    let reclaimer = file::existing(&shm(&name)).unwrap().unwrap();
    assert!(lock::reclaim(&reclaimer).unwrap());
    assert_eq!(last_seen(&name), LastSeen::Stale);
    let rival = thread::spawn({
        let name = name.clone();
        move || create_signed(&name, CreateMode::Tmpfile)
    });
    // It must wait for the reclaimer, who unlinks and goes.
    thread::sleep(20 * PAUSE);
    assert!(!rival.is_finished());
    fs::remove_file(shm(&name)).unwrap();
    drop((reclaimer, nothing_starts));
    drop(rival.join().unwrap().unwrap());
}

#[test]
fn a_stale_file_that_another_has_replaced_meanwhile_is_not_removed_again() {
    let name = name("slow");
    let path = shm(&name);
    abandon(create_signed(&name, CreateMode::Tmpfile).unwrap());
    let slow = file::existing(&path).unwrap().unwrap();
    let winner = create_signed(&name, CreateMode::Tmpfile).unwrap();
    assert!(winner.reclaimed);
    assert!(lock::reclaim(&slow).unwrap());
    assert!(!Identity::of(&slow).unwrap().remove(&path).unwrap());
    assert!(path.exists());
}

#[test]
fn probing_does_not_take_the_lock() {
    let name = name("probe");
    abandon(create_signed(&name, CreateMode::Tmpfile).unwrap());
    let (one, other) =
        (file::existing(&shm(&name)).unwrap().unwrap(), file::existing(&shm(&name)).unwrap().unwrap());
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
    helper.tell(&format!("create {name} 0"));
    assert_eq!(helper.answer(), format!("won {}", helper.pid()));
    helper.tell("fork");
    let answer = helper.answer();
    let child: i32 = answer.strip_prefix("forked ").unwrap().parse().unwrap();
    helper.kill();
    // SAFETY: asks about a process that the helper started; no memory is involved.
    assert_eq!(unsafe { libc::kill(child, 0) }, 0, "the child lives on");
    let created = create_signed(&name, CreateMode::Tmpfile);
    // SAFETY: ends that process, which waits for nothing else.
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
        // Now and then one goes the other way.
        for (i, creator) in creators.iter_mut().enumerate() {
            let verb = if race % 4 == 0 && i < 2 { "exclusive" } else { "create" };
            creator.tell(&format!("{verb} {name} {start}"));
        }
        joiners.iter_mut().for_each(|joiner| joiner.tell(&format!("open {name} {start}")));
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
        creators.iter_mut().chain(&mut joiners).for_each(|helper| helper.tell("abandon"));
        creators.iter().chain(&joiners).for_each(|helper| assert_eq!(helper.answer(), "abandoned"));
        assert!(shm(&name).exists());
    }
    assert!(winners.len() > 1, "no race took place: {winners:?}");
    fs::remove_file(shm(&name)).unwrap();
    assert!(beside(&name).is_empty());
}

/// FAULTS 16 and 12: whenever the creator is killed, the next one succeeds.
#[test]
fn a_creator_killed_at_any_moment_does_not_spoil_the_name() {
    const KILLS: u32 = 40;
    let name = name("moment");
    // How long it takes if nobody is killed, on this machine and at this time.
    let mut whole = Duration::ZERO;
    let mut reclaimed = 0;
    for kill in 0..=KILLS {
        let way = WAYS[kill as usize % 2];
        let mut helper = Helper::start(HELPER, "rank");
        helper.tell("ready");
        assert_eq!(helper.answer(), "ready");
        let started = Instant::now();
        helper.tell(&format!("{} {name} 0", if way == CreateMode::Tmpfile { "create" } else { "exclusive" }));
        if kill == 0 {
            assert!(helper.answer().starts_with("won"));
            whole = started.elapsed();
        } else {
            thread::sleep(2 * whole * kill / KILLS);
        }
        helper.kill();
        let created = create_signed(&name, way).unwrap();
        reclaimed += u32::from(created.reclaimed);
        open(&name, signed, in_time()).unwrap();
    }
    assert!(!shm(&name).exists());
    assert!(reclaimed > 1, "no kill came late enough to leave anything");
    // Nothing but what a kill between making a file and signing it leaves, which proves nothing.
    for path in beside(&name) {
        assert_eq!(fs::metadata(&path).unwrap().len(), 0, "{}", path.display());
        fs::remove_file(&path).unwrap();
    }
}

/// FAULTS 28.
#[test]
fn signals_do_not_disturb_the_allocation() {
    let name = name("signals");
    let mut helper = Helper::start(HELPER, "rank");
    helper.tell(&format!("alarmed {name} 0"));
    let answer = helper.answer();
    let alarms: u32 = answer.strip_prefix("alarms ").unwrap_or_else(|| panic!("{answer}")).parse().unwrap();
    assert!(alarms > 10, "{alarms} alarms");
    assert!(!shm(&name).exists());
}

/// Some kernels undo what a signal interrupts; then only steps that are short enough ever succeed.
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
fn a_full_dev_shm_is_an_error_that_says_how_much_was_wanted() {
    const UNABLE: i32 = 77;
    let script = format!("mount -t tmpfs -o size=64k none /dev/shm || exit {UNABLE}; exec \"$@\"");
    let test = command(HELPER, "small");
    let run = |flags: &str| {
        let mut command = Command::new("unshare");
        command.arg(flags).args(["sh", "-c", &script, "sh"]).arg(test.get_program());
        prepare(&mut command, HELPER, "small");
        let _starting = starting();
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
    let Some(left) = headroom::min_headroom() else {
        return println!("SKIPPED: no memory limit is known (the arithmetic has tests of its own)");
    };
    let len = left.bytes as usize + (4 << 30);
    let error = create(&name, len, |_| panic!("must not get here")).unwrap_err();
    assert!(matches!(error, CreateError::Memory { requested, .. } if requested == len), "{error:?}");
    assert!(!shm(&name).exists());
}

#[test]
fn what_is_not_a_segment_is_refused_with_a_reason() {
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
    let starting = starting();
    assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
    drop(starting);
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

/// FAULTS 27: what the caller refuses is refused, at once.
#[test]
fn a_segment_that_is_cut_short_is_refused() {
    let name = name("short");
    let created = create_signed(&name, CreateMode::Tmpfile).unwrap();
    File::options().write(true).open(shm(&name)).unwrap().set_len(100).unwrap();
    let error = open(&name, signed, in_time()).unwrap_err();
    assert!(matches!(error, OpenError::Rejected(100)), "{error:?}");
    drop(created);
}

#[test]
fn names_that_are_no_names_are_refused() {
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

/// What the other processes of these tests run: a command a line, an answer a line.
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
    while let Some(line) = told() {
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
            _ => eprintln!("what is {line:?}?"),
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

/// Whether a descriptor of this process is a file where segments are.
fn has_descriptor() -> bool {
    let descriptors = fs::read_dir("/proc/self/fd").unwrap();
    descriptors
        .filter_map(|entry| fs::read_link(entry.unwrap().path()).ok())
        .any(|target| target.starts_with(file::DIRECTORY))
}

/// A child that does nothing but live, for the limit at most.
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

/// Makes a segment that takes a while, in a thread that gets a signal every 100 µs or so.
fn alarmed(name: &str) -> String {
    static ALARMS: AtomicU32 = AtomicU32::new(0);
    extern "C" fn count(_signal: libc::c_int) {
        ALARMS.fetch_add(1, Ordering::Relaxed);
    }
    let handler = count as extern "C" fn(libc::c_int);
    // SAFETY: a plain structure, for which zeros are valid: no flags, so that system calls are interrupted.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler as libc::sighandler_t;
    // SAFETY: the handler does nothing but an atomic addition.
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
            let created = create(name, 64 << 20, sign);
            let opened = open(name, |_, _| Ok::<_, Infallible>(()), in_time());
            (created.is_err() || opened.is_err()).then(|| format!("{created:?} {opened:?}"))
        });
        let failure = failures.next();
        done.store(true, Ordering::Relaxed);
        failure.unwrap_or_else(|| format!("alarms {}", ALARMS.load(Ordering::Relaxed)))
    })
}
