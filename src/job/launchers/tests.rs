//! The launchers by their recorded variables: `make launchers` starts them.

use std::collections::BTreeMap;

use super::placement::{Launcher, Surroundings};
use super::{Choice, choose};
use crate::error::Error;
use crate::sys::process;
use crate::sys::shm_file::is_name;

/// A rank's surroundings, as they were recorded.
#[derive(Clone, Default)]
struct Recorded {
    variables: BTreeMap<String, String>,
    /// The process at the other end of every open socket.
    peer: Option<String>,
    agent: Option<String>,
    /// How far away the ancestors are that have set variables, where that is known.
    generations: BTreeMap<String, usize>,
}

impl Surroundings for Recorded {
    fn variable(&self, name: &str) -> Option<String> {
        self.variables.get(name).cloned()
    }

    fn peer(&self, descriptor: i32) -> Option<String> {
        self.peer.clone().filter(|_| descriptor >= 0)
    }

    fn setter_of(&self, _variable: &str) -> Option<String> {
        self.agent.clone()
    }

    fn generations_to_setter(&self, variable: &str) -> Option<usize> {
        self.generations.get(variable).copied()
    }
}

impl Recorded {
    /// `NAME=value`, separated by spaces.
    fn with(mut self, variables: &str) -> Self {
        for variable in variables.split_whitespace() {
            let (name, value) = variable.split_once('=').expect("NAME=value");
            self.variables.insert(name.to_owned(), value.to_owned());
        }
        self
    }

    fn set_by(mut self, ancestors: &[(&str, usize)]) -> Self {
        self.generations =
            ancestors.iter().map(|(name, generation)| ((*name).to_owned(), *generation)).collect();
        self
    }

    fn without(mut self, name: &str) -> Self {
        assert!(self.variables.remove(name).is_some(), "{name}");
        self
    }

    fn choice(&self) -> Choice {
        choose(self).unwrap_or_else(|error| panic!("{error}")).expect("a launcher")
    }

    fn job(&self) -> (String, usize, usize) {
        self.choice().job.expect("not by our own variables")
    }

    /// The rank and the size.
    fn place(&self) -> (usize, usize) {
        let (_, rank, size) = self.job();
        (rank, size)
    }

    fn name(&self) -> String {
        self.job().0
    }

    #[track_caller]
    fn refused(&self) -> Error {
        choose(self).expect_err("it is refused")
    }
}

/// Open MPI 5.0.11, 3 ranks on 2 processors: the numbers on the node are in another order.
fn open_mpi_5(rank: usize) -> Recorded {
    let local = [0, 2, 1][rank];
    Recorded::default().with(&format!(
        "OMPI_COMM_WORLD_LOCAL_RANK={local} OMPI_COMM_WORLD_LOCAL_SIZE=3 OMPI_COMM_WORLD_NODE_RANK={local} \
         OMPI_COMM_WORLD_RANK={rank} OMPI_COMM_WORLD_SIZE=3 OMPI_UNIVERSE_SIZE=2 PMIX_RANK={rank} PMIX_HOSTNAME=vm \
         PMIX_NAMESPACE=prterun-vm-4707@1 PMIX_SERVER_URI2=prterun-vm-4707@0.0;tcp4://127.0.0.1:39685 PRTE_LAUNCHED=1"
    ))
}

/// Open MPI 4.1.8.
fn open_mpi_4(rank: usize) -> Recorded {
    Recorded::default().with(&format!(
        "OMPI_COMM_WORLD_LOCAL_RANK={rank} OMPI_COMM_WORLD_LOCAL_SIZE=3 OMPI_COMM_WORLD_RANK={rank} OMPI_COMM_WORLD_SIZE=3 \
         PMIX_NAMESPACE=2122186753 PMIX_RANK={rank} PMIX_SERVER_URI2=2122186752.0;tcp4://127.0.0.1:45941"
    ))
}

/// MPICH 5.0.2, each rank with a socket of its own.
fn mpich(rank: usize) -> Recorded {
    let descriptor = [9, 11, 16][rank];
    let recorded = Recorded { peer: Some("4768@1000".to_owned()), ..Recorded::default() };
    recorded.with(&format!(
        "MPI_LOCALNRANKS=3 MPI_LOCALRANKID={rank} PMI_FD={descriptor} PMI_HOSTNAME=vm PMI_RANK={rank} PMI_SIZE=3"
    ))
}

/// Intel MPI 2021.19.
fn intel_mpi(rank: usize) -> Recorded {
    mpich(rank).with("I_MPI_HYDRA_UUID=e71f0000-ad49-3d5c-da60-060020cec83a HYDRA_BSTRAP_NODE_ID=0")
}

/// Slurm 22.05.8: `srun -N1 -n3`.
fn slurm(rank: usize) -> Recorded {
    Recorded::default().with(&format!(
        "SLURMD_NODENAME=one SLURM_CLUSTER_NAME=test SLURM_GTIDS=0,1,2 SLURM_JOB_ID=1 SLURM_LOCALID={rank} SLURM_NNODES=1 \
         SLURM_NODEID=0 SLURM_NTASKS=3 SLURM_PROCID={rank} SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=3"
    ))
}

/// Slurm 22.05.8: `srun -N2 -n3`, with two tasks on the first node.
fn slurm_on_two_nodes(rank: usize) -> Recorded {
    let (node, local, tasks) = [(0, 0, "0,1"), (0, 1, "0,1"), (1, 0, "2")][rank];
    slurm(rank).with(&format!("SLURM_NNODES=2 SLURM_NODEID={node} SLURM_LOCALID={local} SLURM_GTIDS={tasks}"))
}

/// As PyTorch 2 documents it.
fn torchrun(rank: usize) -> Recorded {
    let recorded = Recorded { agent: Some("321@500".to_owned()), ..Recorded::default() };
    recorded.with(&format!(
        "LOCAL_RANK={rank} RANK={rank} GROUP_RANK=0 ROLE_RANK={rank} LOCAL_WORLD_SIZE=3 WORLD_SIZE=3 MASTER_ADDR=localhost \
         MASTER_PORT=29500 TORCHELASTIC_RESTART_COUNT=0 TORCHELASTIC_MAX_RESTARTS=0 TORCHELASTIC_RUN_ID=none"
    ))
}

/// What a rank of this number has.
type Record = fn(usize) -> Recorded;

const LAUNCHERS: [(Record, Launcher); 6] = [
    (open_mpi_5, Launcher::OpenMpi),
    (open_mpi_4, Launcher::OpenMpi),
    (mpich, Launcher::Hydra),
    (intel_mpi, Launcher::Hydra),
    (slurm, Launcher::Slurm),
    (torchrun, Launcher::Torchrun),
];

#[test]
fn the_ranks_of_a_job_have_one_name_and_their_own_numbers() {
    for (recorded, launcher) in LAUNCHERS {
        let name = recorded(0).name();
        assert!(name.starts_with(&format!("/intranode-{}-{}-", process::user(), launcher.as_str())), "{name}");
        assert!(is_name(&name), "{name}");
        for rank in 0..3 {
            let recorded = recorded(rank);
            let choice = recorded.choice();
            assert_eq!((choice.launcher, choice.disagreement), (launcher, None));
            assert_eq!(recorded.job(), (name.clone(), rank, 3), "{launcher}");
        }
    }
}

#[test]
fn another_job_has_another_name() {
    let other = |recorded: Recorded, change: &str| recorded.with(change);
    let agent = Recorded { agent: Some("321@501".to_owned()), ..torchrun(0) };
    let proxy = Recorded { peer: Some("4768@1001".to_owned()), ..mpich(0) };
    let pairs = [
        (open_mpi_5(0), other(open_mpi_5(0), "PMIX_NAMESPACE=prterun-vm-4707@2")),
        (open_mpi_5(0), other(open_mpi_5(0), "PMIX_SERVER_URI2=prterun-vm-4707@0.0;tcp4://127.0.0.1:1")),
        (mpich(0), proxy),
        (intel_mpi(0), other(intel_mpi(0), "I_MPI_HYDRA_UUID=0")),
        (slurm(0), other(slurm(0), "SLURM_JOB_ID=2")),
        (slurm(0), other(slurm(0), "SLURM_STEP_ID=1")),
        (slurm(0), other(slurm(0), "SLURM_RESTART_COUNT=1")),
        (torchrun(0), agent),
        (torchrun(0), other(torchrun(0), "TORCHELASTIC_RESTART_COUNT=1")),
        (torchrun(0), other(torchrun(0), "MASTER_PORT=29501")),
    ];
    for (one, other) in pairs {
        assert_ne!(one.name(), other.name());
    }
}

#[test]
fn without_variables_there_is_no_launcher() {
    assert_eq!(choose(&Recorded::default()).expect("no error"), None);
    assert_eq!(choose(&slurm(0).with("INTRANODE_LAUNCHER=none")).expect("no error"), None);
}

#[test]
fn the_script_of_sbatch_is_no_rank() {
    let script = slurm(0).without("SLURM_STEP_ID").without("SLURM_STEP_NUM_TASKS").with("SLURM_GTIDS=0");
    assert_eq!(choose(&script).expect("no error"), None);
    // The steps of a batch script and of an interactive allocation.
    for step in ["4294967291", "4294967290"] {
        assert_eq!(choose(&slurm(0).with(&format!("SLURM_STEP_ID={step}"))).expect("no error"), None);
    }
    // Asked for by name, it says what is missing.
    let error = script.with("INTRANODE_LAUNCHER=slurm").refused().to_string();
    assert!(error.contains("SLURM_STEP_NUM_TASKS is not set") && error.contains("Slurm"), "{error}");
}

#[test]
fn mpiexec_in_an_allocation_counts_and_not_the_step_of_its_proxy() {
    // As recorded: the proxy is the step's only task.
    let step = "SLURM_CLUSTER_NAME=test SLURM_GTIDS=0 SLURM_JOB_ID=6 SLURM_LOCALID=0 SLURM_NODEID=0 SLURM_NTASKS=3 \
                SLURM_PROCID=0 SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=1";
    for (recorded, launcher) in LAUNCHERS.into_iter().filter(|(_, launcher)| *launcher != Launcher::Slurm) {
        let choice = recorded(1).with(step).choice();
        assert_eq!((choice.launcher, recorded(1).with(step).place()), (launcher, (1, 3)));
        let told = choice.disagreement.expect("they disagree");
        assert!(told.contains("rank 1 of 3") && told.contains("rank 0 of 1 by those of Slurm"), "{told}");
        let by_name = recorded(1).with(step).with("INTRANODE_LAUNCHER=slurm");
        assert_eq!((by_name.choice().launcher, by_name.place()), (Launcher::Slurm, (0, 1)));
    }
}

#[test]
fn pmi_2_under_srun_is_slurm() {
    let recorded = slurm(1).with("PMI_FD=13 PMI_JOBID=3.0 PMI_RANK=1 PMI_SIZE=3 SLURM_MPI_TYPE=pmi2");
    assert_eq!((recorded.choice().launcher, recorded.place()), (Launcher::Slurm, (1, 3)));
}

#[test]
fn our_own_variables_come_first_and_are_not_completed_by_others() {
    for variable in ["INTRANODE_NAME=/job", "INTRANODE_RANK=0", "INTRANODE_SIZE=1"] {
        let choice = open_mpi_5(0).with(variable).choice();
        assert_eq!(choice, Choice { launcher: Launcher::Intranode, job: None, disagreement: None });
        let by_name = open_mpi_5(1).with(variable).with("INTRANODE_LAUNCHER=openmpi");
        assert_eq!(by_name.place(), (1, 3));
    }
}

#[test]
fn a_job_that_a_rank_has_started_counts_and_not_the_rank_s_own() {
    let other = "OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=1 OMPI_COMM_WORLD_LOCAL_RANK=0 OMPI_COMM_WORLD_LOCAL_SIZE=1 \
                 PMIX_NAMESPACE=other";
    let far = ("OMPI_COMM_WORLD_LOCAL_RANK", 3);
    for (recorded, launcher, known_by) in [
        (mpich(1), Launcher::Hydra, "MPI_LOCALRANKID"),
        (torchrun(1), Launcher::Torchrun, "TORCHELASTIC_RUN_ID"),
        (slurm(1), Launcher::Slurm, "SLURM_STEP_ID"),
    ] {
        let inner = recorded.with(other).set_by(&[far, (known_by, 1)]);
        assert_eq!((inner.choice().launcher, inner.place()), (launcher, (1, 3)));
        // One that is not known to have been set by any is the farthest.
        let inner = inner.set_by(&[(known_by, 5)]);
        assert_eq!((inner.choice().launcher, inner.place()), (launcher, (1, 3)));
        let outer = inner.set_by(&[("OMPI_COMM_WORLD_LOCAL_RANK", 1), (known_by, 3)]);
        assert_eq!((outer.choice().launcher, outer.place()), (Launcher::OpenMpi, (0, 1)));
    }
    // Also a job of ours. A shell between may set one of our variables itself, and then it is one of ours.
    let ours = open_mpi_5(1).with("INTRANODE_NAME=/job INTRANODE_RANK=0 INTRANODE_SIZE=1");
    let [name, rank] = ["INTRANODE_NAME", "INTRANODE_RANK"].map(|name| move |generation| (name, generation));
    let near = ("OMPI_COMM_WORLD_LOCAL_RANK", 2);
    assert_eq!(ours.clone().set_by(&[name(4), rank(4), near]).place(), (1, 3));
    assert_eq!(ours.clone().set_by(&[name(4), rank(1), near]).choice().launcher, Launcher::Intranode);
    // What is not set is nobody's.
    let half = ours.without("INTRANODE_RANK").set_by(&[name(4), rank(1), near]);
    assert_eq!(half.place(), (1, 3));
}

#[test]
fn ranks_on_several_nodes_are_refused_unless_each_node_is_a_job() {
    let on_two_nodes = [
        open_mpi_5(1).with("OMPI_COMM_WORLD_SIZE=6"),
        intel_mpi(2).with("PMI_SIZE=6"),
        torchrun(2).with("WORLD_SIZE=6 RANK=5"),
    ];
    for recorded in on_two_nodes {
        let error = recorded.refused();
        assert!(matches!(error, Error::SeveralNodes { ranks: 6, local: 3, .. }), "{error:?}");
        assert!(error.to_string().contains("INTRANODE_SCOPE=node"), "{error}");
        assert_eq!(recorded.clone().with("INTRANODE_SCOPE=node").place(), (2, 3));
    }
    let places: Vec<_> = (0..3)
        .map(|rank| slurm_on_two_nodes(rank).with("INTRANODE_SCOPE=node"))
        .map(|recorded| recorded.job())
        .collect();
    assert_eq!(
        places.iter().map(|(_, rank, size)| (*rank, *size)).collect::<Vec<_>>(),
        [(0, 2), (1, 2), (0, 1)]
    );
    assert!(places[0].0 == places[1].0 && places[0].0 != places[2].0, "{places:?}");
    // On one node it has no effect.
    assert_eq!(open_mpi_5(1).with("INTRANODE_SCOPE=node").place(), (1, 3));
}

#[test]
fn a_wrong_variable_is_named_with_what_is_allowed() {
    let cases = [
        (slurm(0).with("INTRANODE_LAUNCHER=lsf"), "INTRANODE_LAUNCHER", "openmpi, hydra"),
        (slurm(0).with("INTRANODE_SCOPE=world"), "INTRANODE_SCOPE", "job or node"),
        (Recorded::default().with("INTRANODE_RANK=0 INTRANODE_SCOPE=world"), "INTRANODE_SCOPE", "job or node"),
        (Recorded::default().with("INTRANODE_SCOPE=world"), "INTRANODE_SCOPE", "job or node"),
        (slurm(0).with("SLURM_PROCID=first"), "SLURM_PROCID", "a number"),
        (slurm(0).with("SLURM_GTIDS=1,0,2"), "SLURM_GTIDS", "number 0 is 0"),
        (slurm(0).without("SLURM_JOB_ID"), "SLURM_JOB_ID", "Slurm has set"),
        (open_mpi_5(0).without("PMIX_NAMESPACE"), "PMIX_NAMESPACE", "Open MPI has set"),
        (open_mpi_5(0).with("OMPI_COMM_WORLD_RANK=3"), "INTRANODE_LAUNCHER", "rank 3 of 3"),
        (open_mpi_5(0).with("OMPI_COMM_WORLD_SIZE=2"), "INTRANODE_LAUNCHER", "0 of 3"),
        (open_mpi_5(0).with("OMPI_COMM_WORLD_LOCAL_RANK=3"), "INTRANODE_LAUNCHER", "3 of 3"),
        (Recorded { peer: None, ..mpich(0) }, "PMI_FD", "may have closed it"),
        (mpich(0).without("PMI_FD"), "PMI_FD", "is not set"),
        (Recorded { agent: None, ..torchrun(0) }, "TORCHELASTIC_RUN_ID", "INTRANODE_NAME"),
    ];
    for (recorded, variable, allowed) in cases {
        let error = recorded.refused();
        let text = error.to_string();
        assert!(matches!(&error, Error::InvalidConfiguration(bad) if bad.setting == variable), "{text}");
        assert!(text.contains(allowed), "{text}");
    }
    // With Intel MPI the UUID is enough.
    assert_eq!(Recorded { peer: None, ..intel_mpi(1) }.place(), (1, 3));
    for alias in ["mpich", "impi", "hydra"] {
        assert_eq!(mpich(1).with(&format!("INTRANODE_LAUNCHER={alias}")).place(), (1, 3));
    }
}

#[test]
fn an_empty_setting_is_as_none() {
    for empty in ["INTRANODE_LAUNCHER=", "INTRANODE_SCOPE="] {
        assert_eq!(slurm(1).with(empty).place(), slurm(1).place(), "{empty}");
    }
}

#[test]
fn other_users_of_local_rank_are_not_torchrun() {
    let recorded = torchrun(0).without("TORCHELASTIC_RUN_ID");
    assert_eq!(choose(&recorded).expect("no error"), None);
}

/// A launcher of the same protocol has perhaps started several.
#[test]
fn variables_of_which_only_some_are_set_are_an_error() {
    let cases = [
        ("OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_RANK"),
        ("OMPI_COMM_WORLD_LOCAL_SIZE=2", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"),
        ("PMI_RANK=1 PMI_SIZE=2 PMI_FD=5", "MPI_LOCALRANKID", "PMI_RANK"),
        ("MPI_LOCALNRANKS=2", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
        ("TORCHELASTIC_RUN_ID=none RANK=1 WORLD_SIZE=2", "LOCAL_RANK", "TORCHELASTIC_RUN_ID"),
    ];
    for (variables, missing, found) in cases {
        let some = Recorded::default().with(variables);
        let error = some.refused();
        let text = error.to_string();
        assert!(matches!(&error, Error::InvalidConfiguration(bad) if bad.setting == missing), "{text}");
        assert!(text.contains(&format!("as {found} is")) && text.contains("INTRANODE_LAUNCHER=none"), "{text}");
        assert_eq!(choose(&some.with("INTRANODE_LAUNCHER=none")).expect("no error"), None);
    }
    // Those of one that is there count.
    assert_eq!(slurm(1).with("PMI_RANK=1 PMI_SIZE=3").place(), (1, 3));
}
