//! Names whose jobs live, have ended, or are being reclaimed by several processes at a time.

use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::FileExt;
use std::process;
use std::str::FromStr;
use std::sync::atomic::Ordering;
use std::time::{Instant, SystemTime};

use super::super::signature::PREAMBLE;
use super::*;
use crate::sys::testing::{Helper, in_forked_child, no_spawning};

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
    // The segment of a further communicator.
    let split = draft(4096, &trailer(&name));
    split.file().unwrap().write_all_at(b"new!", 0).unwrap();
    keep(split, &names::region(&name, 9));
    // Files that stay: another job's, unsigned ones, and a locked one.
    keep(draft(4096, &trailer(&other_job)), &names::region(&name, 4));
    keep(draft(0, b"new!"), &names::region(&name, 5));
    fs::write(shm(&names::region(&name, 6)), [0; 8192]).unwrap();
    fs::write(shm(&names::draft(&name, 7)), b"").unwrap();
    let mut live = draft(4096, &trailer(&name));
    live.publish(&shm(&names::region(&name, 8))).unwrap();
    assert_eq!(other_files(&name).len(), 9);
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
    assert!(lock::reclaim(reclaimer.open().unwrap()).unwrap());
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
    assert!(lock::reclaim(slow.open().unwrap()).unwrap());
    assert!(!Identity::of(slow.open().unwrap()).unwrap().remove(&path).unwrap());
    assert!(path.exists());
}

#[test]
fn reading_the_holder_does_not_lock() {
    let name = name("probe");
    abandon(create_signed(&name, CreateMode::Tmpfile).unwrap());
    let [one, other] = [0; 2].map(|_| file::open_existing(&shm(&name)).unwrap().unwrap());
    let one = one.open().unwrap();
    assert_eq!(lock::holder(one).unwrap(), Holder::Nobody);
    assert!(lock::claim(other.open().unwrap()).unwrap());
    assert_eq!(lock::holder(one).unwrap(), Holder::Job);
    assert!(!lock::reclaim(one).unwrap());
    drop(other);
    assert!(lock::reclaim(one).unwrap());
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
