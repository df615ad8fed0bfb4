//! `ShmBackend`: Cobre's traits over a communicator of one node, or of several.

use std::any::{Any, type_name};
use std::env;
use std::sync::Arc;
#[cfg(feature = "shared-memory")]
use std::sync::atomic::AtomicU64;

use cobre_comm::{
    BackendError, BackendKind, CommData, CommError, Communicator, ExecutionTopology, HostInfo, LocalBackend,
    ReduceOp, TopologyProvider,
};
use intranode::cast::{slice, slice_mut};
use intranode::{Config, Hierarchical, Launcher, Leaders, Operation};

use crate::coded::{Coded, decode, encode};
use crate::error;

/// The prefix of the variables that count before those of any launcher.
const PREFIX: &str = "COBRE_SHM";

/// Those of them without which no rank joins.
const REQUIRED: [&str; 3] = ["COBRE_SHM_NAME", "COBRE_SHM_RANK", "COBRE_SHM_SIZE"];

/// Cobre's communicator over shared memory, between the processes of one machine, or of several nodes with one leader each.
///
/// A reduction folds the values in rank order, so its result has the same bits on every rank and in every run, on one node and on
/// several.
///
/// # Element types
///
/// Cobre's traits accept any `Copy` type. References and padding must not be sent to other processes, so the type is checked
/// in every collective: allowed are numbers (`u8` to `u64`, `i8` to `i64`, `usize`, `isize`, `f32`, `f64`), `bool` and `char`.
/// Any other type is [`CommError::CollectiveFailed`], with its name, on the ranks that use it. The other ranks get an error
/// too, and the next collective works. A `bool` has no sum, a `char` neither sum nor bitwise or, and floating-point values
/// have no bitwise or.
///
/// # Errors
///
/// A rank's own invalid arguments are [`CommError::InvalidBufferSize`] and [`CommError::InvalidRoot`], as with every backend;
/// the other ranks then get [`CommError::CollectiveFailed`] with a message that names the rank. So do all ranks when one of
/// them is missing, has died, or calls another collective. Its MPI code is 0.
pub struct ShmBackend {
    /// Regions have weak references to it.
    pub(crate) native: Arc<Nodes>,
    /// The number of regions so far, the same on all ranks.
    #[cfg(feature = "shared-memory")]
    pub(crate) regions: AtomicU64,
    topology: ExecutionTopology,
}

/// What connects the nodes is chosen at run time.
pub(crate) type Nodes = Hierarchical<Box<dyn Leaders>>;

/// The longest name of a host that the ranks tell each other, in bytes: that of Linux.
const HOSTNAME: usize = 64;

impl ShmBackend {
    /// Joins the job that the environment names: `COBRE_SHM_NAME` (`/` and up to [`Config::MAX_NAME_BYTES`] bytes),
    /// `COBRE_SHM_RANK`, `COBRE_SHM_SIZE` and, if they are set, `COBRE_SHM_TIMEOUT` and `COBRE_SHM_JOIN_TIMEOUT` in seconds.
    /// Where none of the first three is set, the job of the launcher that has started this process, as `intranode run`,
    /// mpiexec, srun or torchrun: [`Config::from_env`]. `INTRANODE_NODES` simulates nodes, as for
    /// [`Hierarchical::from_env`]. Over MPI there is `intranode_mpi::from_env`, for [`over`](Self::over).
    ///
    /// # Errors
    /// [`BackendError::MissingConfiguration`] names those of `COBRE_SHM_NAME`, `COBRE_SHM_RANK` and `COBRE_SHM_SIZE` that are not set, where
    /// no launcher's variables count; [`BackendError::InitializationFailed`] has any other reason, also one of a launcher's that is missing.
    pub fn from_env() -> Result<Self, BackendError> {
        let missing: Vec<String> = unset().map(str::to_owned).collect();
        let config = if missing.is_empty() {
            Config::from_env_prefix(PREFIX)
        } else if !is_named() && Launcher::detect().map_err(error::joining)?.is_some() {
            Config::from_env()
        } else {
            return Err(error::missing(missing));
        };
        Self::join_nodes(config.map_err(error::joining)?)
    }

    fn join_nodes(config: Config) -> Result<Self, BackendError> {
        let nodes = config.join().and_then(Hierarchical::simulated_by_env).map_err(error::joining)?;
        Self::over(nodes).map_err(error::joining)
    }

    /// Whether any variable for [`from_env`](Self::from_env) is set, or a launcher has started this process.
    pub fn is_configured() -> bool {
        // A wrong name of a launcher is an error of `from_env`.
        is_named() || !matches!(Launcher::detect(), Ok(None))
    }

    /// Joins the job of `config`.
    ///
    /// # Errors
    /// [`BackendError::InitializationFailed`].
    pub fn join(config: Config) -> Result<Self, BackendError> {
        config.join().map(Self::from_communicator).map_err(error::joining)
    }

    /// A backend over a communicator that has joined already.
    pub fn from_communicator(native: intranode::Communicator) -> Self {
        Self::of_parts(Hierarchical::on_one_node(native), vec![hostname()])
    }

    /// A backend over a communicator of several nodes, or of one. Its ranks tell each other the names of their hosts, for
    /// [`topology`](TopologyProvider::topology). Collective.
    ///
    /// ```
    /// use cobre_comm::{Communicator, ReduceOp, TopologyProvider};
    /// use intranode::{Hierarchical, NodeMap};
    /// use intranode_cobre::ShmBackend;
    ///
    /// let sums = intranode::threads(3, |comm| {
    ///     let nodes = Hierarchical::simulated(comm, &NodeMap::new(&[2, 1])?)?;
    ///     let backend = ShmBackend::over(nodes)?;
    ///     let mut sum = [0.0];
    ///     backend.allreduce(&[1.5], &mut sum, ReduceOp::Sum).expect("the other ranks are there");
    ///     Ok::<_, intranode::Error>((sum[0], backend.topology().num_hosts()))
    /// })?;
    /// for sum in sums {
    ///     assert_eq!(sum?, (4.5, 2));
    /// }
    /// # Ok::<(), intranode::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Hierarchical::barrier`].
    pub fn over<L: Leaders + 'static>(nodes: Hierarchical<L>) -> Result<Self, intranode::Error> {
        let mut own = [0; HOSTNAME];
        let name = hostname();
        own.iter_mut().zip(name.as_bytes()).for_each(|(place, byte)| *place = *byte);
        let mut all = vec![own; nodes.size()];
        nodes.allgather(&[own], &mut all)?;
        let of_leader = |node| {
            let bytes: &[u8] = &all[nodes.map().leader_of(node)];
            String::from_utf8_lossy(bytes).trim_end_matches('\0').to_owned()
        };
        let hosts = (0..nodes.map().nodes()).map(of_leader).collect();
        Ok(Self::of_parts(nodes.boxed(), hosts))
    }

    /// By node, the name of its host.
    fn of_parts(native: Nodes, hosts: Vec<String>) -> Self {
        let map = native.map();
        let host = |(node, hostname)| HostInfo { hostname, ranks: map.ranks_of(node).collect() };
        let topology = ExecutionTopology {
            // Cobre's list of backends is closed, and has no entry for this one.
            backend: BackendKind::Auto,
            world_size: map.ranks(),
            hosts: hosts.into_iter().enumerate().map(host).collect(),
            mpi: None,
            slurm: None,
        };
        ShmBackend {
            native: Arc::new(native),
            #[cfg(feature = "shared-memory")]
            regions: AtomicU64::new(0),
            topology,
        }
    }

    /// The underlying communicator, for operations that Cobre's traits lack: reduce, gather, scatter, alltoall, scan, calls that
    /// are started and completed later, and all others. Like Cobre's they are collective, so all ranks make them in the same
    /// order. On several nodes it has the ranks of this node; [`nodes`](Self::nodes) has all.
    ///
    /// ```
    /// use cobre_comm::Communicator;
    /// use intranode_cobre::ShmBackend;
    ///
    /// let gathered = intranode::threads(3, |comm| {
    ///     let backend = ShmBackend::from_communicator(comm);
    ///     let (rank, native) = (backend.rank(), backend.communicator());
    ///     let pending = native.start_allreduce(vec![rank], intranode::ReduceOp::Max)?;
    ///     let mut all = [0; 3];
    ///     native.gather(&[10 * rank], (rank == 0).then_some(&mut all[..]), 0)?;
    ///     Ok::<_, intranode::Error>((pending.wait()?, all))
    /// })?;
    /// for (rank, result) in gathered.into_iter().enumerate() {
    ///     assert_eq!(result?, (vec![2], if rank == 0 { [0, 10, 20] } else { [0; 3] }));
    /// }
    /// # Ok::<(), intranode::Error>(())
    /// ```
    pub fn communicator(&self) -> &intranode::Communicator {
        self.native.local()
    }

    /// The underlying communicator of the ranks of all nodes. Example: [`over`](Self::over).
    pub fn nodes(&self) -> &Hierarchical<Box<dyn Leaders>> {
        &self.native
    }

    /// A new backend with the ranks of this node, in the same order: all ranks, if there is one node. Collective over them. Either
    /// backend can be dropped first.
    ///
    /// # Errors
    /// [`CommError`], as of every collective, and for lack of memory.
    pub fn split_local(&self) -> Result<ShmBackend, CommError> {
        self.native.local().split_local().map(Self::from_communicator).map_err(error::collective)
    }

    /// Refuses `operation`, so that the other ranks get an error. Returns this rank's error.
    #[cold]
    fn refuse(&self, operation: Operation, own: CommError) -> CommError {
        match self.native.refuse_call(operation) {
            Ok(()) => own,
            Err(fatal) => error::collective(fatal),
        }
    }

    #[cold]
    pub(crate) fn refuse_type<T>(&self, operation: Operation, name: &'static str) -> CommError {
        let message = format!("values of type {} cannot be sent; numbers, bool and char can", type_name::<T>());
        self.refuse(operation, error::failed(name, message))
    }

    fn gather_coded<C: Coded>(
        &self,
        send: &[C],
        recv: &mut [C],
        counts: &[usize],
        displs: &[usize],
    ) -> Result<(), CommError> {
        // The gaps between the blocks keep their values.
        let mut codes = encode(recv);
        self.native.allgatherv(&encode(send), &mut codes, counts, displs).map_err(error::collective)?;
        decode("allgatherv", &codes, recv)
    }

    fn reduce_coded<C: Coded>(&self, send: &[C], recv: &mut [C], op: ReduceOp) -> Result<(), CommError> {
        let mut codes = encode(recv);
        self.native.allreduce(&encode(send), &mut codes, native(op)).map_err(error::collective)?;
        decode("allreduce", &codes, recv)
    }

    fn broadcast_coded<C: Coded>(&self, buf: &mut [C], root: usize) -> Result<(), CommError> {
        let mut codes = encode(buf);
        self.native.broadcast(&mut codes, root).map_err(error::collective)?;
        decode("broadcast", &codes, buf)
    }
}

/// Returns the result of `$call` if the element type is a number. After monomorphisation at most one call remains.
macro_rules! if_number {
    (|$number:ident| $call:expr) => {
        if_number!(@each |$number| $call; u8 u16 u32 u64 usize i8 i16 i32 i64 isize f32 f64)
    };
    (@each |$number:ident| $call:expr; $($type:ty)*) => {$(
        {
            type $number = $type;
            if let Some(result) = $call {
                return result.map_err(error::collective);
            }
        }
    )*};
}

impl Communicator for ShmBackend {
    fn allgatherv<T: CommData>(
        &self,
        send: &[T],
        recv: &mut [T],
        counts: &[usize],
        displs: &[usize],
    ) -> Result<(), CommError> {
        if_number!(
            |N| both::<T, N>(send, recv).map(|(send, recv)| self.native.allgatherv(send, recv, counts, displs))
        );
        if let Some((send, recv)) = both::<T, bool>(send, recv) {
            return self.gather_coded(send, recv, counts, displs);
        }
        if let Some((send, recv)) = both::<T, char>(send, recv) {
            return self.gather_coded(send, recv, counts, displs);
        }
        Err(self.refuse_type::<T>(Operation::Allgatherv, "allgatherv"))
    }

    fn allreduce<T: CommData>(&self, send: &[T], recv: &mut [T], op: ReduceOp) -> Result<(), CommError> {
        let operation = Operation::Allreduce;
        if send.is_empty() && recv.is_empty() {
            let error = CommError::InvalidBufferSize { operation: "allreduce", expected: 1, actual: 0 };
            return Err(self.refuse(operation, error));
        }
        if_number!(|N| both::<T, N>(send, recv).map(|(send, recv)| self.native.allreduce(
            send,
            recv,
            native(op)
        )));
        if let Some((send, recv)) = both::<T, bool>(send, recv)
            && op != ReduceOp::Sum
        {
            return self.reduce_coded(send, recv, op);
        }
        if let Some((send, recv)) = both::<T, char>(send, recv)
            && matches!(op, ReduceOp::Min | ReduceOp::Max)
        {
            return self.reduce_coded(send, recv, op);
        }
        let zero: &dyn Any = &T::default();
        if zero.is::<bool>() || zero.is::<char>() {
            let message = format!("{op:?} is not defined for {}", type_name::<T>());
            return Err(self.refuse(operation, error::failed("allreduce", message)));
        }
        Err(self.refuse_type::<T>(operation, "allreduce"))
    }

    fn broadcast<T: CommData>(&self, buf: &mut [T], root: usize) -> Result<(), CommError> {
        if_number!(|N| slice_mut::<T, N>(buf).map(|buf| self.native.broadcast(buf, root)));
        if let Some(buf) = slice_mut::<T, bool>(buf) {
            return self.broadcast_coded(buf, root);
        }
        if let Some(buf) = slice_mut::<T, char>(buf) {
            return self.broadcast_coded(buf, root);
        }
        Err(self.refuse_type::<T>(Operation::Broadcast, "broadcast"))
    }

    fn barrier(&self) -> Result<(), CommError> {
        self.native.barrier().map_err(error::collective)
    }

    fn rank(&self) -> usize {
        self.native.rank()
    }

    fn size(&self) -> usize {
        self.native.size()
    }

    fn abort(&self, error_code: i32) -> ! {
        self.native.abort(error_code)
    }
}

impl TopologyProvider for ShmBackend {
    /// A host for each node, with its ranks. Its `backend` is [`BackendKind::Auto`], since Cobre's list has no entry for this one.
    fn topology(&self) -> &ExecutionTopology {
        &self.topology
    }
}

fn both<'a, T: 'static, U: 'static>(send: &'a [T], recv: &'a mut [T]) -> Option<(&'a [U], &'a mut [U])> {
    slice(send).zip(slice_mut(recv))
}

fn native(op: ReduceOp) -> intranode::ReduceOp {
    match op {
        ReduceOp::Sum => intranode::ReduceOp::Sum,
        ReduceOp::Min => intranode::ReduceOp::Min,
        ReduceOp::Max => intranode::ReduceOp::Max,
        ReduceOp::BitwiseOr => intranode::ReduceOp::BitOr,
    }
}

fn hostname() -> String {
    LocalBackend.topology().leader_hostname().to_string()
}

/// Whether a required variable is set.
fn is_named() -> bool {
    unset().count() < REQUIRED.len()
}

/// The required variables that are not set.
fn unset() -> impl Iterator<Item = &'static str> {
    REQUIRED.into_iter().filter(|name| env::var_os(name).is_none())
}
