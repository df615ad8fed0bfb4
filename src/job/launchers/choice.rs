//! Which launcher's variables count, and the job that follows from them.

use super::placement::{Launcher, Placement, Surroundings};
use super::{hydra, openmpi, slurm, torchrun};
use crate::error::Error;
use crate::job::settings::{given, invalid, one_of};
use crate::sys::process;

const CHOOSE: &str = "INTRANODE_LAUNCHER";
const SCOPE: &str = "INTRANODE_SCOPE";

/// Our own variables of a rank.
const INTRANODE: [&str; 3] = ["INTRANODE_NAME", "INTRANODE_RANK", "INTRANODE_SIZE"];

/// The job that a process belongs to, and its place in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::job) struct Choice {
    pub(in crate::job) launcher: Launcher,
    /// The name, rank and size; `None` if the variables `INTRANODE_…` have them.
    pub(in crate::job) job: Option<(String, usize, usize)>,
    /// What another launcher's variables say instead: for people.
    pub(in crate::job) disagreement: Option<String>,
}

/// The launcher that has started this process; `None` if no launcher has.
///
/// # Errors
/// If `INTRANODE_LAUNCHER` is none of its values.
pub(in crate::job) fn detect(surroundings: &dyn Surroundings) -> Result<Option<Launcher>, Error> {
    let Some(wanted) = given(surroundings.variable(CHOOSE)) else {
        return Ok(nearest(surroundings));
    };
    // Both are Hydra; a user thinks of the library.
    let wanted = if ["mpich", "impi"].contains(&wanted.as_str()) { "hydra".to_owned() } else { wanted };
    if wanted == "none" {
        return Ok(None);
    }
    let found = Launcher::ALL.into_iter().find(|launcher| launcher.as_str() == wanted);
    let names: Vec<&str> = Launcher::ALL.iter().map(|launcher| launcher.as_str()).collect();
    let allowed = || format!("one of {}, mpich, impi and none", names.join(", "));
    found.map(Some).ok_or_else(|| invalid(CHOOSE, Some(&wanted), &allowed()))
}

/// The launcher whose variables are there. A rank that starts another job hands down its own variables too, so of several that
/// one counts which is the nearest among the ancestors of this process; where that is not known, the first of all.
fn nearest(surroundings: &dyn Surroundings) -> Option<Launcher> {
    let is_present = |launcher: &Launcher| is_present(*launcher, surroundings);
    let present: Vec<Launcher> = Launcher::ALL.into_iter().filter(is_present).collect();
    if let [] | [_] = present[..] {
        return present.first().copied();
    }
    let generations = |launcher: &Launcher| {
        let is_set = known_by(*launcher).iter().filter(|name| surroundings.variable(name).is_some());
        is_set.filter_map(|name| surroundings.generations_to_setter(name)).min().unwrap_or(usize::MAX)
    };
    present.into_iter().min_by_key(generations)
}

/// The variables by which a launcher is known.
fn known_by(launcher: Launcher) -> &'static [&'static str] {
    match launcher {
        Launcher::Intranode => &INTRANODE,
        Launcher::OpenMpi => &[openmpi::LOCAL_RANK],
        Launcher::Hydra => &[hydra::LOCAL_RANK],
        Launcher::Torchrun => &[torchrun::RUN_ID],
        Launcher::Slurm => &[slurm::STEP],
    }
}

/// The job that this process belongs to; `None` if no launcher has started it.
///
/// # Errors
/// If a variable is missing or wrong, if only some of a launcher's are set, or if the ranks are on several nodes and `INTRANODE_SCOPE`
/// is not `node`.
pub(in crate::job) fn choose(surroundings: &dyn Surroundings) -> Result<Option<Choice>, Error> {
    // Also where it has no effect: a wrong value is an error.
    let scopes = [("job", false), ("node", true)];
    let by_node = one_of(SCOPE, given(surroundings.variable(SCOPE)), &scopes)?.unwrap_or(false);
    let Some(launcher) = detect(surroundings)? else {
        refuse_some(surroundings)?;
        return Ok(None);
    };
    let Some(placement) = placement(launcher, surroundings).transpose()? else {
        return Ok(Some(Choice { launcher, job: None, disagreement: None }));
    };
    let (rank, size) = scoped(&placement, by_node)?;
    let name = name(launcher, &placement.identity);
    let disagreement = disagreement(launcher, &placement, surroundings);
    Ok(Some(Choice { launcher, job: Some((name, rank, size)), disagreement }))
}

/// Refuses a process that has some variables of a rank, but not the one by which its launcher is known: a launcher of the same
/// protocol has perhaps started several, each of which would be alone without a word.
fn refuse_some(surroundings: &dyn Surroundings) -> Result<(), Error> {
    let is_set = |name: &&str| surroundings.variable(name).is_some();
    if given(surroundings.variable(CHOOSE)).is_some() {
        return Ok(()); // it is `none`
    }
    for (launcher, missing, others) in [openmpi::HALF, hydra::HALF, torchrun::HALF] {
        if let Some(found) = others.iter().copied().find(is_set) {
            let allowed = format!(
                "set by {launcher}, as {found} is; set INTRANODE_NAME, INTRANODE_RANK and INTRANODE_SIZE instead, or {CHOOSE}=none \
                 if this process is no rank"
            );
            return Err(invalid(missing, None::<&str>, &allowed));
        }
    }
    Ok(())
}

fn is_present(launcher: Launcher, surroundings: &dyn Surroundings) -> bool {
    match launcher {
        Launcher::Intranode => INTRANODE.iter().any(|name| surroundings.variable(name).is_some()),
        Launcher::OpenMpi => openmpi::is_present(surroundings),
        Launcher::Hydra => hydra::is_present(surroundings),
        Launcher::Torchrun => torchrun::is_present(surroundings),
        Launcher::Slurm => slurm::is_present(surroundings),
    }
}

/// Where the launcher has put this process; `None` for our own variables, which [`Config`](crate::Config) reads.
fn placement(launcher: Launcher, surroundings: &dyn Surroundings) -> Option<Result<Placement, Error>> {
    let placement = match launcher {
        Launcher::Intranode => return None,
        Launcher::OpenMpi => openmpi::placement(surroundings),
        Launcher::Hydra => hydra::placement(surroundings),
        Launcher::Torchrun => torchrun::placement(surroundings),
        Launcher::Slurm => slurm::placement(surroundings),
    };
    Some(placement.and_then(|placement| checked(launcher, placement)))
}

/// Refuses what makes no sense.
fn checked(launcher: Launcher, placement: Placement) -> Result<Placement, Error> {
    let Placement { rank, size, local_rank, local_size, .. } = placement;
    if rank < size && local_rank < local_size && local_size <= size {
        return Ok(placement);
    }
    let said = format!("rank {rank} of {size}, on this node {local_rank} of {local_size}");
    let allowed = format!("a launcher whose variables fit together; those of {launcher} say {said}");
    Err(invalid(CHOOSE, Some(launcher.as_str()), &allowed))
}

/// The rank and the size. On one node they are the launcher's own: its numbers within a node may have another order.
fn scoped(placement: &Placement, by_node: bool) -> Result<(usize, usize), Error> {
    let Placement { rank, size, local_rank, local_size, .. } = *placement;
    match (local_size == size, by_node) {
        (true, _) => Ok((rank, size)),
        (false, true) => Ok((local_rank, local_size)),
        (false, false) => Err(Error::SeveralNodes { ranks: size, local: local_size }),
    }
}

fn name(launcher: Launcher, identity: &str) -> String {
    format!("/intranode-{}-{}-{:016x}", process::user(), launcher.as_str(), digest(identity))
}

/// FNV-1a: the same in every program of a job, whatever compiler it was built with.
fn digest(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |digest, byte| {
        (digest ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// The first other launcher whose variables give another rank or size.
fn disagreement(launcher: Launcher, placement: &Placement, surroundings: &dyn Surroundings) -> Option<String> {
    let others = Launcher::ALL.into_iter().filter(|other| *other != launcher);
    let present = others.filter(|other| is_present(*other, surroundings));
    let mut placed = present.filter_map(|other| Some((other, self::placement(other, surroundings)?.ok()?)));
    let differs = |other: &Placement| (other.rank, other.size) != (placement.rank, placement.size);
    let (other, said) = placed.find(|(_, said)| differs(said))?;
    Some(format!(
        "this is rank {} of {} by the variables of {launcher}, which are used, and rank {} of {} by those of {other}; {CHOOSE} \
         decides",
        placement.rank, placement.size, said.rank, said.size,
    ))
}
