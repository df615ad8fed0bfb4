//! How a process becomes a rank.
//!
//! 1. Rank 0 makes the segment; the others wait for its name, and check what they find.
//! 2. Each claims its rank, and starts to watch the others: from here on a death is noticed.
//! 3. All meet in a first round, whose time-out is that of joining. From here on everybody is there.
//! 4. Rank 0 removes the name: another job may use it.
//! 5. All tell each other which processors they may use, which decides how to wait, and how to meet; and whether they can
//!    read in each other's memory.

use std::sync::Arc;
use std::thread::Builder;
use std::time::Instant;

use bytemuck::Zeroable;

use crate::collective::allgatherv::{BlockTable, gather, gather_words};
use crate::communicator::Communicator;
use crate::error::{Error, InitFailure, Operation};
use crate::job::config::{Config, WaitKind};
use crate::job::environment;
use crate::liveness::Detection;
use crate::liveness::fatal::FatalSignals;
use crate::liveness::watcher::{Listener, Watcher};
use crate::protocol::{Call, Cause, CauseKind, membership, watch};
use crate::rank::cma_peers::{CmaPeers, ProbeCookie};
use crate::rank::comm_tree::{CommTree, DeathFanout};
use crate::rank::job_state::Observer;
use crate::rank::rank_state::RankState;
use crate::segment::layout::{Layout, LayoutError};
use crate::segment::mapped::{MappedSegment, START};
use crate::segment::platform::ShmPlatform;
use crate::segment::settings::BarrierShape;
use crate::segment::settings::{SegmentSettings, SingleCopy};
use crate::sys::file_size::write_stderr;
use crate::sys::memory::mapping::Mapping;
use crate::sys::memory::rlimit;
use crate::sys::nodelete;
use crate::sys::processors::Processors;
use crate::sys::shm_file::{self, CreateError, Created, Link, OpenError, Unusable};
use crate::sys::sigusr2;
use crate::sys::wait::spin::SpinPolicy;

const CALL: Call = Call {
    operation: Operation::Init as u8,
    reduction: 0,
    element: 0,
    refused: false,
    phase: 0,
    shape: 0,
    length: 0,
    extra: 0,
};

impl Communicator {
    /// Joins the job that the environment names: [`Config::from_env`](crate::Config::from_env), then
    /// [`Config::join`](crate::Config::join). Collective.
    ///
    /// ```
    /// use intranode::{Communicator, Error};
    ///
    /// match Communicator::from_env() {
    ///     Ok(comm) => comm.barrier()?,
    ///     // Not started by a launcher: INTRANODE_NAME, INTRANODE_RANK or INTRANODE_SIZE is not set.
    ///     Err(Error::InvalidConfiguration(bad)) => assert_eq!(bad.value, None),
    ///     Err(other) => return Err(other),
    /// }
    /// # Ok(())
    /// ```
    ///
    /// # Errors
    /// As those two.
    pub fn from_env() -> Result<Self, Error> {
        Config::from_env()?.join()
    }
}

impl Config {
    /// Joins the job, and returns when all its ranks have. Rank 0 may come last. As soon as all are there the name
    /// is free again. Collective.
    ///
    /// ```
    /// use intranode::Config;
    ///
    /// let name = format!("/example-join-{}", std::process::id());
    /// for _ in 0..2 {
    ///     // The name is free again for the second job.
    ///     let comm = Config::new(&name, 0, 1).join()?;
    ///     comm.leave()?;
    /// }
    /// # Ok::<(), intranode::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidConfiguration`] for values that are not allowed; [`Error::AllocationFailed`] without memory;
    /// [`Error::InvalidLayout`] if the segment does not fit into the address space; [`Error::InitializationFailed`] when a
    /// rank does not come in time, was told another size, is there twice, cannot start the thread that watches the others,
    /// or what is found under the name cannot be joined.
    pub fn join(self) -> Result<Communicator, Error> {
        self.check()?;
        let settings = environment::process_settings();
        let started = Instant::now();
        let (world, link) = if self.rank == 0 { self.create()? } else { (self.open(started)?, None) };
        let machine = ShmPlatform {
            wait: world.wait(),
            spin: SpinPolicy::new(self.size, 0),
            timeout: self.join_timeout.map(|timeout| timeout.saturating_sub(started.elapsed())),
        };
        self.claim(&world, &machine)?;
        let job = self.name.as_str().into();
        let seat = RankState::new(Arc::clone(&world), machine, self.rank, job, settings, START);
        let joining = Communicator::new(seat, None);
        let joining = self.watch(joining, &world, machine, settings.detection)?;
        joining
            .seat
            .collective(Operation::Init, |member| member.begin_call(&CALL, |_| ()).map(drop))
            .map_err(|error| self.not_all_came(error))?;
        if let Some(mut link) = link
            && let Err(error) = link.unlink()
        {
            return Err(self.failed("its name could not be removed", Some(error)));
        }
        let all = self.exchange_processors(&joining).map_err(|error| self.not_all_came(error))?;
        let processors = Processors::count(&all);
        let spin = SpinPolicy::chosen(self.spin, self.size, processors);
        let machine = ShmPlatform { spin, timeout: self.timeout, ..machine };
        let near: Vec<u64> = all.iter().map(|rank| rank.cache).collect();
        let oversubscribed = processors < self.size;
        let groups = world.barrier_shape().groups(&near, oversubscribed);
        let mut cma_peers = None;
        if world.single_copy().is_tried(oversubscribed) {
            cma_peers = probe_cma_peers(&joining.seat).map_err(|error| self.not_all_came(error))?;
        }
        let joined = joining.joined(machine, groups, cma_peers);
        joined.seat.debug_transport();
        Ok(joined)
    }

    fn create(&self) -> Result<(Arc<MappedSegment>, Option<Link>), Error> {
        let layout = self.layout()?;
        let pthread = self.wait == WaitKind::Pthread;
        let shape = BarrierShape::chosen(self.group, self.size);
        let settings =
            SegmentSettings { pthread, shape, single_copy: SingleCopy::chosen(self.single_copy, self.size) };
        let mut result = Ok(());
        let init = |mapping: &Mapping| {
            result = MappedSegment::initialise(mapping, &layout, std::process::id(), settings);
        };
        let signature = &layout.preamble(std::process::id());
        let wanted = shm_file::CreateRequest {
            name: &self.name,
            len: layout.len(),
            signature,
            is_segment: Layout::is_segment,
        };
        let Created { link, mapping, reclaimed } =
            shm_file::create(wanted, init).map_err(|error| self.not_created(error))?;
        result.map_err(|error| self.failed("its mutexes could not be made", Some(error)))?;
        if reclaimed {
            let name = &self.name;
            write_stderr(&format!("intranode: removed what a job that has ended left under {name}\n"));
        }
        Ok((Arc::new(MappedSegment::new(mapping, layout)), Some(link)))
    }

    fn open(&self, started: Instant) -> Result<Arc<MappedSegment>, Error> {
        let mut found = None;
        let validate = |preamble: &[u8], length: u64| {
            let (layout, _) = Layout::decode(preamble, length)?;
            found = Some(layout);
            Ok::<_, LayoutError>(())
        };
        // A moment too far away for the clock never comes.
        let deadline = self.join_timeout.and_then(|timeout| started.checked_add(timeout));
        let mapping = shm_file::open(&self.name, Layout::is_segment, validate, deadline)
            .map_err(|error| self.not_opened(error))?;
        let layout = match found {
            Some(layout) if MappedSegment::is_initialised(&mapping) => layout,
            _ => return Err(self.failed("the segment is not what it was a moment before", None)),
        };
        let world = Arc::new(MappedSegment::new(mapping, layout));
        if layout.ranks() == self.size {
            return Ok(world);
        }
        let machine = ShmPlatform { wait: world.wait(), spin: SpinPolicy::new(1, 1), timeout: None };
        let cause = Cause { kind: CauseKind::WrongSize, rank: self.rank, detail: self.size as u32 };
        let _ = membership::poison(&machine, world.segment(), cause);
        let error = LayoutError::Size { segment: layout.ranks(), expected: self.size };
        Err(self.failed(&error.to_string(), None))
    }

    fn claim(&self, world: &MappedSegment, machine: &ShmPlatform) -> Result<(), Error> {
        membership::claim(machine, world.segment(), self.rank, std::process::id()).map_err(|owner| {
            let rank = self.rank;
            let reason =
                format!("process {owner} is rank {rank} already; give every process a rank of its own");
            self.failed(&reason, None)
        })
    }

    /// Ends the communicator for everybody when another rank dies.
    fn watch(
        &self,
        comm: Communicator,
        world: &Arc<MappedSegment>,
        machine: ShmPlatform,
        detection: Detection,
    ) -> Result<Communicator, Error> {
        nodelete::keep_loaded();
        let mut observer = None;
        if self.state_reports {
            sigusr2::install()
                .map_err(|error| self.failed("a handler for SIGUSR2 is not allowed", Some(error)))?;
            observer = Some(Arc::new(Observer::new(world, &self.name, self.rank)));
        }
        let fanout = Arc::<DeathFanout>::default();
        let handler = DeathHandler {
            world: Arc::clone(world),
            machine,
            fanout: Arc::clone(&fanout),
            observer: observer.clone(),
        };
        // A single rank has nobody to watch, but may be asked for its state.
        let watcher = (self.size > 1 || self.state_reports)
            .then(|| Watcher::start(world, self.rank, handler, detection))
            .transpose()
            .map_err(|error| self.failed("its watcher's thread could not be started", Some(error)))?;
        let register = || FatalSignals::register(world, machine, self.rank);
        let fatal_signals = self
            .fatal_signals
            .then(register)
            .transpose()
            .map_err(|error| self.failed("a handler for fatal signals is not allowed", Some(error)))?;
        let tree = CommTree::new(fanout, watcher, self.fatal_signals);
        Ok(comm.with_tree(tree, fatal_signals).with_observer(observer))
    }

    fn exchange_processors(&self, joining: &Communicator) -> Result<Vec<Processors>, Error> {
        let mut own = [Processors::available()];
        if joining.seat.mapped.barrier_shape() != BarrierShape::FLAT {
            own = own.map(Processors::with_cache);
        }
        let mut all = vec![Processors::zeroed(); self.size];
        let table = BlockTable::Equal { bytes: size_of::<Processors>() };
        let (send, recv) = (bytemuck::cast_slice(&own), bytemuck::cast_slice_mut(&mut all));
        gather(&mut joining.seat.begin(Operation::Init)?, &CALL, send, recv, table)?;
        Ok(all)
    }

    fn failed(&self, reason: &str, source: Option<std::io::Error>) -> Error {
        let reason = source.as_ref().map_or(reason.to_owned(), |error| format!("{reason}: {error}"));
        self.failure(reason, Vec::new(), source)
    }

    fn failure(&self, reason: String, missing: Vec<usize>, source: Option<std::io::Error>) -> Error {
        let name = self.name.clone();
        let failure = InitFailure { name, rank: self.rank, reason, missing, source };
        Error::InitializationFailed(Box::new(failure))
    }

    /// What an error in the first rounds means.
    fn not_all_came(&self, error: Error) -> Error {
        let Error::TimedOut { late, .. } = error else {
            return self.failed(&error.to_string(), None);
        };
        let missing = late.into_vec();
        let names: Vec<String> = missing.iter().map(usize::to_string).collect();
        let timeout = self.join_timeout.unwrap_or_default();
        let reason = format!(
            "rank {} never joined within {timeout:?}; start all {} ranks, with the same name and size",
            names.join(", "),
            self.size,
        );
        self.failure(reason, missing, None)
    }

    fn not_created(&self, error: CreateError) -> Error {
        match error {
            CreateError::Live { preamble } => {
                let holder = Layout::holder(&preamble);
                let holder = holder.map_or("another program".to_owned(), |pid| format!("process {pid}"));
                let reason = format!("{holder} is rank 0 of a live job of this name; use another name");
                self.failed(&reason, None)
            }
            CreateError::Memory { requested, .. } | CreateError::NoSpace { requested, .. } => {
                no_memory(requested, error.to_string())
            }
            CreateError::Contended { .. } | CreateError::Foreign { .. } => {
                self.failed(&error.to_string(), None)
            }
            CreateError::Unusable(unusable) => self.unusable(unusable),
        }
    }

    fn not_opened(&self, error: OpenError<LayoutError>) -> Error {
        match error {
            OpenError::Rejected(layout) => self.failed(&layout.to_string(), None),
            OpenError::TimedOut { .. } => {
                let text = error.to_string();
                let timeout = self.join_timeout.unwrap_or_default();
                let reason = format!("rank 0 never joined within {timeout:?} ({text})");
                self.failure(reason, vec![0], None)
            }
            OpenError::Memory { requested, .. } => no_memory(requested, error.to_string()),
            OpenError::Foreign { .. } => self.failed(&error.to_string(), None),
            OpenError::Unusable(unusable) => self.unusable(unusable),
        }
    }

    fn unusable(&self, error: Unusable) -> Error {
        self.failure(error.to_string(), Vec::new(), error.into_source())
    }
}

fn no_memory(requested_bytes: usize, reason: String) -> Error {
    Error::AllocationFailed { operation: Operation::Init, requested_bytes, reason: reason.into() }
}

/// Finds out whether each rank can read in the memory of each. Collective.
fn probe_cma_peers(seat: &RankState) -> Result<Option<CmaPeers>, Error> {
    let cma_peers = CmaPeers::of((0..seat.size()).map(|rank| seat.pid(rank)).collect());
    let mut open = seat.begin(Operation::Init)?;
    let token = ProbeCookie::new();
    let shown = gather_words(&mut open, &CALL, token.encode())?;
    let found = shown.into_iter().enumerate().all(|(rank, shown)| cma_peers.probe(rank, shown));
    let all = gather_words(&mut open, &CALL, [u64::from(found)])?;
    // Until here others may read it.
    drop(token);
    Ok(all.iter().all(|[found]| *found == 1).then_some(cma_peers))
}

/// What a rank's watcher does.
struct DeathHandler {
    world: Arc<MappedSegment>,
    machine: ShmPlatform,
    fanout: Arc<DeathFanout>,
    observer: Option<Arc<Observer>>,
}

impl watch::Listener for DeathHandler {
    fn end(&self, rank: usize) {
        let cause = Cause { kind: CauseKind::Died, rank, detail: 0 };
        // Only tests stop a rank in between.
        let _ = membership::poison(&self.machine, self.world.segment(), cause);
    }

    fn died(&self, rank: usize) {
        self.fanout.died(rank);
    }
}

impl Listener for DeathHandler {
    fn needs_ticks(&self) -> bool {
        self.observer.is_some()
    }

    fn tick(&self) {
        self.observers().iter().for_each(|observer| observer.sample());
    }

    fn report_requested(&self) {
        let observers = self.observers();
        if !observers.is_empty() && rlimit::refuses(0, rlimit::THREAD).is_none() {
            // On a thread of its own: who reads may keep the writer waiting. If there is none, nobody is told.
            let write = move || observers.iter().for_each(|observer| observer.write());
            let _ = Builder::new().name("intranode-state".to_owned()).spawn(write);
        }
    }
}

impl DeathHandler {
    /// Of the job, and of those parts of it that this process is in.
    fn observers(&self) -> Vec<Arc<Observer>> {
        let Some(own) = &self.observer else { return Vec::new() };
        let mut all = self.fanout.observers();
        // While it joins, it is not yet among them.
        if !all.iter().any(|observer| Arc::ptr_eq(observer, own)) {
            all.push(Arc::clone(own));
        }
        all
    }
}
