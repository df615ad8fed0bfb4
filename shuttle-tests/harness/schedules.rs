//! Runs a model under many schedules, and prints how to repeat a failing one.
//!
//! Schedules come in batches with a seed each. A batch is repeated by its seed, and one schedule by the file that
//! shuttle leaves when it fails.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, LazyLock};
use std::time::SystemTime;

use libtest_mimic::{Failed, Trial};
use shuttle::scheduler::{PctScheduler, RandomScheduler, ReplayScheduler};
use shuttle::{Config, FailurePersistence, MaxSteps, Runner};

/// Repeats the batch with this seed.
pub const SEED: &str = "INTRANODE_SHUTTLE_SEED";
/// Repeats the schedule in this file.
pub const SCHEDULE: &str = "INTRANODE_SHUTTLE_SCHEDULE";
/// How many schedules each test runs, instead of its own number.
pub const ITERATIONS: &str = "INTRANODE_SHUTTLE_ITERATIONS";

/// shuttle's own variable, which would take the place of every seed here.
const OVERRIDE: &str = "SHUTTLE_RANDOM_SEED";

/// How schedules are chosen.
#[derive(Clone, Copy, Debug)]
pub enum Chooser {
    /// Each step by any actor.
    Random,
    /// Probabilistic concurrency testing (Burckhardt et al. 2010): priorities, with a few changes.
    Pct,
}

/// How many schedules share a seed. PCT learns the length of an execution from those before.
const BATCH: usize = 16;

/// The priority changes in an execution that PCT looks for, plus one.
const DEPTH: usize = 5;

/// A budget that no right execution needs.
const STEPS: usize = 20_000_000;

impl Chooser {
    /// Both.
    pub const ALL: [Chooser; 2] = [Chooser::Random, Chooser::Pct];

    /// The name in a test's name.
    pub fn name(self) -> &'static str {
        match self {
            Chooser::Random => "random",
            Chooser::Pct => "pct",
        }
    }
}

/// A test that explores `schedules` schedules of `model`.
pub fn trial(
    what: &str,
    chooser: Chooser,
    schedules: usize,
    model: impl Fn() + Send + Sync + 'static,
) -> Trial {
    let name = format!("{what}, {}", chooser.name());
    Trial::test(name.clone(), move || explore(&name, chooser, schedules, model).map(drop))
}

/// Explores `schedules` schedules of `model`, and returns how many have run to their end: fewer in a replay.
///
/// # Errors
/// When one fails, or other than the stated number have run to their end.
pub fn explore(
    name: &str,
    chooser: Chooser,
    schedules: usize,
    model: impl Fn() + Send + Sync + 'static,
) -> Result<usize, Failed> {
    if std::env::var_os(OVERRIDE).is_some() {
        return Err(format!("{OVERRIDE} would make all batches the same: use {SEED}").into());
    }
    let files = Files::new(name)?;
    let finished = Arc::new(AtomicUsize::new(0));
    let counter = finished.clone();
    let model = Arc::new(move || {
        model();
        counter.fetch_add(1, Relaxed);
    });
    if let Ok(file) = std::env::var(SCHEDULE) {
        let mut scheduler = ReplayScheduler::new_from_file(file)?;
        scheduler.set_allow_incomplete();
        let mut config = files.config();
        config.failure_persistence = FailurePersistence::None;
        catch_unwind(AssertUnwindSafe(|| Runner::new(scheduler, config).run(move || model())))
            .map_err(|_| Failed::from("the schedule fails"))?;
        return Ok(0);
    }
    let (first, iterations) = (number(SEED)?, number(ITERATIONS)?.map(|count| count as usize));
    let wanted = iterations.unwrap_or(if first.is_some() { BATCH } else { schedules });
    let (mut seed, mut left) = (first.unwrap_or(0), wanted);
    while left > 0 {
        let batch = left.min(BATCH);
        let model = model.clone();
        let run = AssertUnwindSafe(|| match chooser {
            Chooser::Random => {
                Runner::new(RandomScheduler::new_from_seed(seed, batch), files.config()).run(move || model())
            }
            Chooser::Pct => Runner::new(PctScheduler::new_from_seed(seed, DEPTH, batch), files.config())
                .run(move || model()),
        });
        catch_unwind(run).map_err(|_| files.explain(name, seed))?;
        (seed, left) = (seed + 1, left - batch);
    }
    match finished.load(Relaxed) {
        finished if finished == wanted && wanted > 0 => Ok(finished),
        finished => Err(format!("{finished} schedules have run to their end, not {wanted}").into()),
    }
}

/// shuttle's first run in a process installs a panic hook that leaves every later schedule where that run's
/// configuration says. Without the hook each run leaves it where its own says.
pub fn take_over_panics() {
    let mut config = Config::new();
    config.failure_persistence = FailurePersistence::None;
    Runner::new(RandomScheduler::new_from_seed(0, 1), config).run(|| ());
    drop(std::panic::take_hook());
}

fn number(variable: &str) -> Result<Option<u64>, Failed> {
    match std::env::var(variable) {
        Ok(text) => text.parse().map(Some).map_err(|_| format!("{variable}: {text} is no number").into()),
        Err(_) => Ok(None),
    }
}

/// Where the failing schedules of one test go.
struct Files {
    folder: PathBuf,
}

impl Files {
    fn new(name: &str) -> std::io::Result<Self> {
        let test = name.replace(|c: char| !c.is_ascii_alphanumeric(), "-");
        // Processes that were killed have left theirs, and numbers of processes come again.
        static PROCESS: LazyLock<String> = LazyLock::new(|| {
            let since = SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_nanos());
            format!("shuttle-{}-{since}", std::process::id())
        });
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(&*PROCESS).join(test);
        std::fs::create_dir_all(&folder)?;
        Ok(Files { folder })
    }

    fn config(&self) -> Config {
        let mut config = Config::new();
        config.failure_persistence = FailurePersistence::File(Some(self.folder.clone()));
        config.max_steps = MaxSteps::FailAfter(STEPS);
        config.stack_size = 1 << 17;
        config.silence_warnings = true;
        config.ungraceful_shutdown_config.immediately_return_on_panic = true;
        config
    }

    fn explain(&self, name: &str, seed: u64) -> Failed {
        let command = format!("cargo test --features shuttle --test shuttle -- --exact '{name}'");
        let mut text = format!("a schedule fails. To repeat its batch:\n    {SEED}={seed} {command}");
        for file in std::fs::read_dir(&self.folder).into_iter().flatten().flatten() {
            text += &format!("\nTo repeat it alone:\n    {SCHEDULE}={} {command}", file.path().display());
        }
        text.into()
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        // Only what is empty goes.
        let _ = std::fs::remove_dir(&self.folder);
        let _ = self.folder.parent().map(std::fs::remove_dir);
    }
}
