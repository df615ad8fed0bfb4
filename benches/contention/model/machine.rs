//! Machines: which cores share which caches, and the latency of each step.

use super::{Time, from_nanoseconds};

/// The constants: latencies, and capacities.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cost {
    NearLatency,
    FarLatency,
    CrossLatency,
    NearService,
    FarService,
    CrossService,
    Probe,
    Atomic,
    Check,
    Pause,
    Window,
}

/// One row of the table of constants.
pub(crate) struct Constant {
    pub(crate) cost: Cost,
    pub(crate) meaning: &'static str,
    pub(crate) unit: &'static str,
    /// For an EPYC, a Xeon, a Xeon Phi.
    pub(crate) values: [f64; 3],
    pub(crate) source: &'static str,
}

const fn row(
    cost: Cost,
    meaning: &'static str,
    unit: &'static str,
    values: [f64; 3],
    source: &'static str,
) -> Constant {
    Constant { cost, meaning, unit, values, source }
}

/// All constants of the model. "core-to-core-latency" is github.com/nviennot/core-to-core-latency: two cores that
/// compare-exchange one line alternately, the time of one way. Without a published value the source says "estimate" and how
/// it was made; the sensitivity shows which estimates matter.
pub(crate) const CONSTANTS: [Constant; 11] = [
    row(
        Cost::NearLatency,
        "a line from another core of the L3",
        "ns",
        [23.0, 51.0, 91.0],
        "core-to-core-latency: EPYC 9274F, 22 to 24 (its issue 132); Xeon 8375C, 51, and Phi 7210, 91 (README, medians)",
    ),
    row(
        Cost::FarLatency,
        "from another L3 of the socket",
        "ns",
        [100.0, 51.0, 91.0],
        "the same: EPYC 9274F, 97 to 104; the other two have one mesh and no smaller domain",
    ),
    row(
        Cost::CrossLatency,
        "where the other socket is involved",
        "ns",
        [195.0, 108.0, 91.0],
        "the same: EPYC 9274F, 188 to 202; Xeon 8375C, 108; the Phi has one socket",
    ),
    row(
        Cost::NearService,
        "between two readers of a line in an L3",
        "ns",
        [11.5, 25.5, 68.0],
        "estimate: half the latency, since the ways of requests and answers overlap; the Phi as in the next row",
    ),
    row(
        Cost::FarService,
        "between two readers of a line at its home",
        "ns",
        [75.0, 38.0, 68.0],
        "estimate: three quarters of the latency, for a directory that holds a line until its transfer is acknowledged",
    ),
    row(
        Cost::CrossService,
        "the same where the other socket is involved",
        "ns",
        [146.0, 81.0, 68.0],
        "estimate: three quarters of the latency",
    ),
    row(
        Cost::Probe,
        "an RFO, for each further L3 to invalidate",
        "ns",
        [2.0, 2.0, 2.0],
        "estimate: probes leave some fabric cycles apart, and their ways overlap",
    ),
    row(
        Cost::Atomic,
        "a compare-exchange of a line that the core owns",
        "ns",
        [6.0, 6.0, 12.0],
        "estimate: some 20 cycles; see what was measured in this run",
    ),
    row(Cost::Check, "to compare a word that has arrived", "ns", [1.5, 1.5, 4.0], "estimate: some 5 cycles"),
    row(
        Cost::Pause,
        "from one poll to the next",
        "ns",
        [20.0, 45.0, 20.0],
        "estimate of PAUSE: some 65 cycles (EPYC), 140 (Xeon since Skylake); see what was measured in this run",
    ),
    row(
        Cost::Window,
        "misses that a core has under way",
        "lines",
        [24.0, 12.0, 12.0],
        "as the vendors describe Zen 3 and Ice Lake (Golden Cove has 16); the Phi: estimate",
    ),
];

/// A machine. Ranks are placed on its cores in order.
#[derive(Clone, Debug)]
pub(crate) struct Machine {
    pub(crate) name: &'static str,
    sockets: usize,
    /// A domain is the cores that share an L3.
    domains_per_socket: usize,
    cores_per_domain: usize,
    values: [f64; CONSTANTS.len()],
    /// Whether the cores of an L3 share the lines that one of them has fetched. If not, each reads from the home.
    pub(crate) shared_fetch: bool,
}

/// The distance of a line transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Distance {
    /// Between two cores of one L3.
    Near,
    /// Between two L3s of the line's home socket.
    Far,
    /// With the other socket involved.
    Cross,
}

impl Machine {
    /// Two sockets of 12 dies, each of 8 cores with an L3: the shape of the EPYC 9654.
    pub(crate) fn epyc() -> Self {
        Machine::new("EPYC, 2 × 12 × 8 cores", [2, 12, 8], 0)
    }

    /// Two sockets of 96 cores with one L3: the shape of the Xeon 6972P.
    pub(crate) fn xeon() -> Self {
        Machine::new("Xeon, 2 × 96 cores", [2, 1, 96], 1)
    }

    /// One socket of 64 cores that share no cache: the shape of the Xeon Phi 7210, but for its pairs of cores.
    pub(crate) fn phi() -> Self {
        Machine::new("Xeon Phi, 64 cores", [1, 64, 1], 2)
    }

    /// Two cores of one L3, to compare with measurements on two processors.
    pub(crate) fn pair() -> Self {
        Machine::new("two cores of one L3", [1, 1, 2], 0)
    }

    fn new(name: &'static str, shape: [usize; 3], column: usize) -> Self {
        let [sockets, domains_per_socket, cores_per_domain] = shape;
        let values = CONSTANTS.each_ref().map(|constant| constant.values[column]);
        Machine { name, sockets, domains_per_socket, cores_per_domain, values, shared_fetch: true }
    }

    /// The same with another value of one constant.
    #[must_use]
    pub(crate) fn with(mut self, cost: Cost, value: f64) -> Self {
        self.values[cost as usize] = value;
        self
    }

    /// The same, but each reader reads from the home, even if another core of its L3 has a copy.
    #[must_use]
    pub(crate) fn without_shared_fetch(mut self, name: &'static str) -> Self {
        self.name = name;
        self.shared_fetch = false;
        self
    }

    pub(crate) fn value(&self, cost: Cost) -> f64 {
        self.values[cost as usize]
    }

    pub(crate) fn time(&self, cost: Cost) -> Time {
        from_nanoseconds(self.value(cost))
    }

    pub(crate) fn window(&self) -> usize {
        (self.value(Cost::Window) as usize).max(1)
    }

    pub(crate) fn cores(&self) -> usize {
        self.domains() * self.cores_per_domain
    }

    pub(crate) fn domains(&self) -> usize {
        self.sockets * self.domains_per_socket
    }

    pub(crate) fn domain(&self, core: usize) -> usize {
        core / self.cores_per_domain
    }

    fn socket(&self, core: usize) -> usize {
        self.domain(core) / self.domains_per_socket
    }

    /// All lines are in the memory of the first socket, where rank 0 has allocated them. Transfers between cores of one L3 do
    /// not involve it.
    pub(crate) fn distance(&self, one: usize, other: usize) -> Distance {
        if self.domain(one) == self.domain(other) {
            Distance::Near
        } else if self.socket(one) == 0 && self.socket(other) == 0 {
            Distance::Far
        } else {
            Distance::Cross
        }
    }

    pub(crate) fn latency(&self, distance: Distance) -> Time {
        self.time(match distance {
            Distance::Near => Cost::NearLatency,
            Distance::Far => Cost::FarLatency,
            Distance::Cross => Cost::CrossLatency,
        })
    }

    pub(crate) fn service(&self, distance: Distance) -> Time {
        self.time(match distance {
            Distance::Near => Cost::NearService,
            Distance::Far => Cost::FarService,
            Distance::Cross => Cost::CrossService,
        })
    }
}
