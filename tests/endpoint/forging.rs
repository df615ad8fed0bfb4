//! Owners of memory that forge their answers. A get or a put of such an owner's memory ends with an error, in time; it writes nothing
//! but the caller's slices; and the same endpoint serves its other peers meanwhile.

use std::io::{IoSlice, IoSliceMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use intranode::{Access, Address, Endpoint, EndpointError, Handle, Peer};
use libtest_mimic::Completion;

use super::forged_answers::{GETS, LONG, Outcome, PULLED, Row, SENT, honest};
use super::forger::{self, Asked, BEGIN, DATA, Forger, bytes};
use super::messages::pattern;
use super::{Test, repeats, unique};

pub(super) const TESTS: &[Test] = &[
    ("case_61_an_owner_that_forges_answers_to_a_get", forged_gets),
    ("case_61_an_owner_that_forges_answers_to_a_put", forged_puts),
    ("case_61_an_owner_that_does_not_answer_is_in_nobodys_way", silence),
    ("case_61_an_owner_that_answers_at_random", random_answers),
];

/// An endpoint that polls for so long sends what its peer could read, and is sent what it could read itself.
const POLLS: Duration = Duration::from_millis(1);

/// More than any answer takes.
const LIMIT: Duration = Duration::from_secs(20);

/// An endpoint whose owner forges, and a peer of the same endpoint that gets what it shares, over and over.
struct Victim {
    own: Endpoint,
    listener: forger::Listener,
    address: Address,
    stop: Arc<AtomicBool>,
    served: Arc<AtomicUsize>,
    other: Option<thread::JoinHandle<Result<()>>>,
}

impl Victim {
    fn new(timeout: Duration, spin: Duration) -> Result<Self> {
        let mut own = Endpoint::builder().timeout(timeout).spin(spin).listen(&unique())?;
        let handle = own.share(vec![pattern(3, LONG).into()], Access::Read).handle();
        let address = own.address().expect("it listens").clone();
        let (stop, served) = <(Arc<AtomicBool>, Arc<AtomicUsize>)>::default();
        let (ends, counts) = (Arc::clone(&stop), Arc::clone(&served));
        let other = Some(thread::spawn(move || gets_on(&address, &handle, &ends, &counts)));
        let name = unique();
        let (listener, address) = (forger::listens(&name)?, Address::local(&name)?);
        Ok(Victim { own, listener, address, stop, served, other })
    }

    /// Connects to an owner that answers so, and makes a transfer.
    fn transfers(
        &mut self,
        answer: impl Fn(&mut Forger, &Asked) -> Result<()> + Sync,
        transfer: impl FnOnce(&mut Endpoint, Peer) -> Outcome,
    ) -> Result<Outcome> {
        thread::scope(|scope| {
            let (listener, own, answer) = (&self.listener, &mut self.own, &answer);
            let forger = scope.spawn(move || -> Result<()> {
                let mut forger = listener.accept(pattern(5, LONG))?;
                while let Some(asked) = forger.next()? {
                    answer(&mut forger, &asked)?;
                }
                Ok(())
            });
            let peer = own.connect(&self.address)?;
            let start = Instant::now();
            let outcome = transfer(own, peer);
            let took = start.elapsed();
            // Who answers what cannot be has no connection any more.
            let is_gone = matches!(outcome, Err(EndpointError::PeerGone { .. }));
            ensure!(!is_gone || own.try_send_unexpected(peer, 0, b"").is_err(), "{outcome:?}, and it goes on");
            own.disconnect(peer);
            forger.join().expect("no panic")?;
            ensure!(took < 2 * LIMIT, "it took {took:?}");
            Ok(outcome)
        })
    }

    /// Ends what is served, which must have gone well.
    fn ends(mut self) -> Result<()> {
        self.stop.store(true, Ordering::Relaxed);
        let other = self.other.take().expect("it was started");
        while !other.is_finished() {
            self.own.wait(Some(Duration::from_millis(1)))?;
        }
        other.join().expect("no panic")
    }
}

/// A peer of the victim's: what it gets is right, whatever others do.
fn gets_on(address: &Address, handle: &Handle, stop: &AtomicBool, served: &AtomicUsize) -> Result<()> {
    // As long as a case takes.
    let mut own = Endpoint::builder().timeout(3 * LIMIT).client()?;
    let (peer, expected) = (own.connect(address)?, pattern(3, LONG));
    while !stop.load(Ordering::Relaxed) {
        let mut target = vec![0; LONG];
        own.get(peer, handle, 0, &mut [IoSliceMut::new(&mut target)])?;
        ensure!(target == expected, "wrong bytes");
        served.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

/// A handle of somebody's memory.
fn handle() -> Result<Handle> {
    let words = bytes(&[fastrand::u64(..), LONG as u64, 2]);
    Ok(Handle::from_bytes(&words)?)
}

/// Gets into the middle of memory. What is around it stays as it is.
fn gets(own: &mut Endpoint, peer: Peer, len: usize) -> Outcome {
    let handle = handle().expect("a handle");
    let mut memory = vec![0xA5; 3 * LONG];
    let (first, rest) = memory[LONG..LONG + len].split_at_mut(len / 3);
    let outcome = own.get(peer, &handle, 0, &mut [IoSliceMut::new(first), IoSliceMut::new(rest)]);
    assert!(outcome.is_err() || memory[LONG..LONG + len] == pattern(5, LONG)[..len], "wrong bytes");
    let around = memory[..LONG].iter().chain(&memory[LONG + len..]);
    assert!(around.copied().all(|byte| byte == 0xA5), "bytes around the slices were written");
    outcome
}

/// Twice: the first goes one way at a time, since it is not known yet whether the memory is so long.
fn puts(own: &mut Endpoint, peer: Peer, len: usize) -> Outcome {
    let (handle, data) = (handle().expect("a handle"), pattern(9, len));
    own.put(peer, &handle, 0, &[IoSlice::new(&data)])?;
    own.put(peer, &handle, 0, &[IoSlice::new(&data)])
}

/// Of an endpoint that polls for so long before it sleeps.
fn forged(
    rows: &[Row],
    spin: Duration,
    transfer: fn(&mut Endpoint, Peer, usize) -> Outcome,
) -> Result<Completion> {
    let mut victim = Victim::new(LIMIT, spin)?;
    for (name, len, answer, is_right) in rows {
        let outcome = victim.transfers(answer, |own, peer| transfer(own, peer, *len))?;
        ensure!(is_right(&outcome), "{name}: {outcome:?}");
    }
    victim.ends()?;
    Ok(Completion::Completed)
}

fn forged_gets() -> Result<Completion> {
    forged(GETS, POLLS, gets)?;
    forged(GETS, Duration::ZERO, gets)
}

fn forged_puts() -> Result<Completion> {
    forged(SENT, POLLS, puts)?;
    forged(PULLED, Duration::ZERO, puts)
}

/// While an endpoint waits for an owner that says nothing it serves others, and then it gives up.
fn silence() -> Result<Completion> {
    let mut victim = Victim::new(Duration::from_millis(100), POLLS)?;
    for transfer in [gets, puts] {
        let (before, start) = (victim.served.load(Ordering::Relaxed), Instant::now());
        // On a busy machine others may need more than the time of one transfer.
        while victim.served.load(Ordering::Relaxed) == before {
            ensure!(start.elapsed() < 3 * LIMIT, "nobody was served");
            let outcome = victim.transfers(|_, _| Ok(()), |own, peer| transfer(own, peer, LONG))?;
            ensure!(matches!(outcome, Err(EndpointError::TimedOut { .. })), "{outcome:?}");
        }
    }
    victim.ends()?;
    Ok(Completion::Completed)
}

/// Answers that are changed at random: whatever comes of them comes in time.
fn random_answers() -> Result<Completion> {
    for spin in [POLLS, Duration::ZERO] {
        answers_at_random(spin)?;
    }
    Ok(Completion::Completed)
}

fn answers_at_random(spin: Duration) -> Result<()> {
    let mut victim = Victim::new(Duration::from_millis(100), spin)?;
    for round in 0..repeats(50) {
        let seed = fastrand::u64(..);
        let answer = move |own: &mut Forger, asked: &Asked| {
            let mut random = fastrand::Rng::with_seed(seed ^ asked.number);
            for _ in 0..random.usize(0..3) {
                own.gives_lease(random.u64(0..3))?;
                let mut map = own.map(random.u64(0..3), &[(own.start(), asked.len), (8, 0)]);
                let place = random.usize(0..map.len());
                map[place] = if random.bool() { random.u64(0..200) } else { random.u64(..) };
                let mut forged = bytes(&map);
                forged.truncate(random.usize(0..=forged.len()));
                own.reply(if random.u8(0..4) == 0 { random.u64(0..4) } else { asked.number }, &forged)?;
            }
            if random.u8(0..4) == 0 {
                let len = random.u64(0..=asked.len.min(4096));
                let data = own.data[..len as usize].to_vec();
                let begin = if random.bool() { 0 } else { random.u64(0..256) << BEGIN };
                own.publish(DATA, asked.number | begin, len, u64::from(len > 40), &data)?;
            }
            if random.bool() {
                own.scribbles(random.u64(..), random.u64(..))?;
            }
            honest(own, asked)
        };
        let transfer = if round % 3 == 0 { puts } else { gets_any };
        let len = fastrand::usize(1..=LONG);
        // Whichever it is: it has not crashed, has ended in time, and has written nothing else.
        let _ = victim.transfers(answer, |own, peer| transfer(own, peer, len))?;
    }
    victim.ends()
}

/// Gets what may be anything.
fn gets_any(own: &mut Endpoint, peer: Peer, len: usize) -> Outcome {
    let mut memory = vec![0xA5; 3 * LONG];
    let outcome =
        own.get(peer, &handle().expect("a handle"), 0, &mut [IoSliceMut::new(&mut memory[LONG..LONG + len])]);
    let around = memory[..LONG].iter().chain(&memory[LONG + len..]);
    assert!(around.copied().all(|byte| byte == 0xA5), "bytes around the slices were written");
    outcome
}
