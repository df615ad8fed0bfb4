//! The model of docs/nodes.md: messages and bytes over the network, by algorithm, nodes and ranks a node.
//!
//! `INTRANODE_WRITE_TABLES=1 cargo test --test nodes_model` writes its tables.

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use intranode::tuning::{CHAIN_CHUNK_BYTES, CHAIN_FROM_BYTES, NODE_PACKET_BYTES, SPREAD_PIECE_BYTES};
use intranode::{Error, Hierarchical, Leaders, LeadersError, LocalLeaders, NodeMap, ReduceOp, Waiting};

/// What goes over the network.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Cost {
    /// Of the busiest node: what it sends.
    messages: u64,
    bytes: u64,
    /// One after the other.
    steps: u64,
}

impl std::ops::Add for Cost {
    type Output = Cost;

    fn add(self, other: Cost) -> Cost {
        Cost {
            messages: self.messages + other.messages,
            bytes: self.bytes + other.bytes,
            steps: self.steps + other.steps,
        }
    }
}

/// A machine: nodes, and ranks of each, powers of two.
#[derive(Clone, Copy, Debug)]
struct Machine {
    nodes: u64,
    each: u64,
}

fn log(number: u64) -> u64 {
    number.ilog2().into()
}

impl Machine {
    fn ranks(self) -> u64 {
        self.nodes * self.each
    }

    // ---- What leaders do

    /// An allgather of `block` bytes a node, by recursive doubling.
    fn leaders_allgather(self, block: u64) -> Cost {
        Cost { messages: log(self.nodes), bytes: (self.nodes - 1) * block, steps: log(self.nodes) }
    }

    /// A broadcast of `bytes`: the binomial tree, whose root sends most, or scatter and allgather by recursive doubling.
    fn leaders_broadcast(self, bytes: u64) -> Cost {
        let steps = log(self.nodes);
        if bytes <= 12 << 10 {
            return Cost { messages: steps, bytes: steps * bytes, steps };
        }
        let shares = bytes - bytes / self.nodes;
        Cost { messages: 2 * steps, bytes: 2 * shares, steps: 2 * steps }
    }

    fn agreement(self) -> Cost {
        self.leaders_allgather(NODE_PACKET_BYTES as u64)
    }

    /// A broadcast, in pieces.
    fn spread(self, bytes: u64) -> Cost {
        pieces(bytes, SPREAD_PIECE_BYTES as u64)
            .fold(Cost::default(), |sum, piece| sum + self.leaders_broadcast(piece))
    }

    // ---- Ours

    /// Whether a contribution comes along with the agreement.
    fn comes_along(self, bytes: u64) -> bool {
        bytes <= 72 && bytes * self.each <= NODE_PACKET_BYTES as u64 - 32
    }

    fn our_allreduce(self, bytes: u64) -> Cost {
        if self.comes_along(bytes) {
            return self.agreement();
        }
        if bytes * self.ranks() < CHAIN_FROM_BYTES as u64 {
            return self.agreement() + self.leaders_allgather(bytes * self.each);
        }
        let chunks = pieces(bytes, CHAIN_CHUNK_BYTES as u64).count() as u64;
        // Node 0 sends chunk after chunk; each goes on while the next is on its way.
        let chain = Cost { messages: chunks, bytes, steps: self.nodes - 1 + chunks - 1 };
        self.agreement() + chain + self.spread(bytes)
    }

    fn our_allgather(self, bytes: u64) -> Cost {
        if self.comes_along(bytes) {
            return self.agreement();
        }
        self.agreement() + self.leaders_allgather(bytes * self.each)
    }

    fn our_broadcast(self, bytes: u64) -> Cost {
        self.agreement() + self.spread(bytes)
    }

    // ---- MPI's, flat

    /// Every rank exchanges all with a partner, in each of log2 R steps; the partners of log2 N of them are on other nodes.
    fn recursive_doubling(self, bytes: u64) -> Cost {
        let steps = log(self.nodes);
        Cost { messages: self.each * steps, bytes: self.each * steps * bytes, steps }
    }

    /// Reduce-scatter by recursive halving, allgather by recursive doubling.
    fn rabenseifner(self, bytes: u64) -> Cost {
        let steps = log(self.nodes);
        let shares = bytes - bytes / self.nodes;
        Cost { messages: 2 * self.each * steps, bytes: 2 * self.each * shares, steps: 2 * steps }
    }

    /// Reduce-scatter and allgather in a ring, of which one rank of each node sends to the next node.
    fn ring(self, bytes: u64) -> Cost {
        let rounds = 2 * (self.ranks() - 1);
        Cost { messages: rounds, bytes: rounds * bytes / self.ranks(), steps: rounds }
    }

    /// An allgather in a ring.
    fn ring_allgather(self, bytes: u64) -> Cost {
        let rounds = self.ranks() - 1;
        Cost { messages: rounds, bytes: rounds * bytes, steps: rounds }
    }

    /// An allgather by recursive doubling: in the last log2 N steps, twice as much in each.
    fn doubling_allgather(self, bytes: u64) -> Cost {
        let steps = log(self.nodes);
        let blocks = self.each * (self.nodes - 1);
        Cost { messages: self.each * steps, bytes: self.each * blocks * bytes, steps }
    }

    /// The root's node sends most: once to each of log2 N other nodes.
    fn binomial_broadcast(self, bytes: u64) -> Cost {
        let steps = log(self.nodes);
        Cost { messages: steps, bytes: steps * bytes, steps }
    }
}

fn pieces(bytes: u64, piece: u64) -> impl Iterator<Item = u64> {
    (0..bytes.div_ceil(piece)).map(move |index| piece.min(bytes - index * piece))
}

/// The busiest node and the steps of messages that are enumerated: step, from, to, bytes.
fn counted(machine: Machine, messages: impl Iterator<Item = (u64, u64, u64, u64)>) -> Cost {
    let mut nodes = vec![Cost::default(); machine.nodes as usize];
    let mut steps = std::collections::BTreeSet::new();
    for (step, from, to, bytes) in messages {
        let (from, to) = (from / machine.each, to / machine.each);
        if from != to {
            let node = &mut nodes[from as usize];
            node.messages += 1;
            node.bytes += bytes;
            steps.insert(step);
        }
    }
    let most = |of: fn(&Cost) -> u64| nodes.iter().map(of).max().unwrap_or_default();
    Cost { messages: most(|node| node.messages), bytes: most(|node| node.bytes), steps: steps.len() as u64 }
}

/// The formulas of the flat algorithms are what their messages add up to.
#[test]
fn formulas_agree_with_messages_that_are_enumerated() {
    for (nodes, each) in [(2, 1), (2, 4), (4, 2), (8, 8), (16, 4)] {
        let machine = Machine { nodes, each };
        let (ranks, bytes) = (machine.ranks(), 1 << 20);
        let all =
            || (0..log(ranks)).flat_map(|step| (0..ranks).map(move |rank| (step, rank, rank ^ 1 << step)));
        let doubling = all().map(|(step, from, to)| (step, from, to, bytes));
        assert_eq!(counted(machine, doubling), machine.recursive_doubling(bytes));

        let halving = all().map(|(step, from, to)| (100 - step, from, to, bytes * (1 << step) / ranks));
        let back = all().map(|(step, from, to)| (200 + step, from, to, bytes * (1 << step) / ranks));
        assert_eq!(counted(machine, halving.chain(back)), machine.rabenseifner(bytes));

        let gathered = all().map(|(step, from, to)| (step, from, to, bytes * (1 << step)));
        assert_eq!(counted(machine, gathered), machine.doubling_allgather(bytes));

        let round = |rounds: u64| {
            (0..rounds).flat_map(move |step| (0..ranks).map(move |rank| (step, rank, (rank + 1) % ranks)))
        };
        let ring = round(2 * (ranks - 1)).map(|(step, from, to)| (step, from, to, bytes / ranks));
        assert_eq!(counted(machine, ring), machine.ring(bytes));
        let ring = round(ranks - 1).map(|(step, from, to)| (step, from, to, bytes));
        assert_eq!(counted(machine, ring), machine.ring_allgather(bytes));

        // The farthest first: rank r sends to r + d if it is a multiple of 2 d.
        let tree = (0..log(ranks)).flat_map(|step| {
            let distance = ranks >> (step + 1);
            (0..ranks).step_by(2 * distance as usize).map(move |rank| (step, rank, rank + distance, bytes))
        });
        assert_eq!(counted(machine, tree), machine.binomial_broadcast(bytes));

        let leaders = Machine { nodes, each: 1 };
        let packets = (0..log(nodes))
            .flat_map(|step| (0..nodes).map(move |node| (step, node, node ^ 1 << step, 128 << step)));
        assert_eq!(counted(leaders, packets), machine.leaders_allgather(128));
    }
}

/// What a leader asks of what connects the leaders.
#[derive(Clone, Copy, Debug)]
enum Asked {
    Allgather { block: u64 },
    Broadcast { bytes: u64 },
    Send { bytes: u64 },
}

/// Leaders that write down what they are asked.
struct Counting(LocalLeaders, Arc<Mutex<Vec<Asked>>>);

impl Counting {
    fn note(&self, asked: Asked) {
        self.1.lock().expect("nothing has panicked").push(asked);
    }

    fn note_allgather(&self, counts: &[usize]) {
        assert!(counts.iter().all(|count| *count == counts[0]), "{counts:?}");
        self.note(Asked::Allgather { block: counts[0] as u64 });
    }
}

impl Leaders for Counting {
    fn node(&self) -> usize {
        self.0.node()
    }

    fn nodes(&self) -> usize {
        self.0.nodes()
    }

    fn allgatherv(
        &mut self,
        data: &mut [u8],
        counts: &[usize],
        wait: &mut Waiting<'_>,
    ) -> Result<(), LeadersError> {
        self.note_allgather(counts);
        self.0.allgatherv(data, counts, wait)
    }

    fn broadcast(&mut self, data: &mut [u8], root: usize, wait: &mut Waiting<'_>) -> Result<(), LeadersError> {
        self.note(Asked::Broadcast { bytes: data.len() as u64 });
        self.0.broadcast(data, root, wait)
    }

    fn send(&mut self, data: &[u8], to: usize, wait: &mut Waiting<'_>) -> Result<(), LeadersError> {
        self.note(Asked::Send { bytes: data.len() as u64 });
        self.0.send(data, to, wait)
    }

    fn recv(&mut self, data: &mut [u8], from: usize, wait: &mut Waiting<'_>) -> Result<(), LeadersError> {
        self.0.recv(data, from, wait)
    }

    fn start_allgatherv(&mut self, data: Vec<u8>, counts: &[usize]) -> Result<(), LeadersError> {
        self.note_allgather(counts);
        self.0.start_allgatherv(data, counts)
    }

    fn start_broadcast(&mut self, data: Vec<u8>, root: usize) -> Result<(), LeadersError> {
        self.note(Asked::Broadcast { bytes: data.len() as u64 });
        self.0.start_broadcast(data, root)
    }

    fn start_send(&mut self, data: Vec<u8>, to: usize) -> Result<(), LeadersError> {
        self.note(Asked::Send { bytes: data.len() as u64 });
        self.0.start_send(data, to)
    }

    fn start_recv(&mut self, data: Vec<u8>, from: usize) -> Result<(), LeadersError> {
        self.0.start_recv(data, from)
    }

    fn test(&mut self, timeout: Option<Duration>) -> Result<Option<Vec<u8>>, LeadersError> {
        self.0.test(timeout)
    }

    fn fail(&mut self, notice: &[u8]) {
        self.0.fail(notice);
    }
}

/// A call of the ranks, of this number of bytes.
type Called = fn(&Hierarchical<Counting>, usize) -> Result<(), Error>;

type Formula = fn(Machine, u64) -> Cost;

/// What a call costs by what the leaders ask for, but for its steps: those of collectives, and of messages the busiest node's.
fn asked(machine: Machine, bytes: u64, call: Called) -> Cost {
    let map = NodeMap::even(machine.ranks() as usize, machine.nodes as usize).expect("it is even");
    let noted = intranode::threads(map.ranks(), |comm| {
        let own = map.node_of(comm.rank());
        let node = comm.split(own, comm.rank())?;
        let leads = node.rank() == 0;
        let meet = comm.split(usize::from(leads), comm.rank())?;
        let notes = Arc::default();
        let leaders = if leads { Some(Counting(LocalLeaders::new(meet)?, Arc::clone(&notes))) } else { None };
        let nodes = Hierarchical::new(node, leaders, map.clone())?;
        // What was asked to make it does not count.
        notes.lock().expect("nothing has panicked").clear();
        call(&nodes, bytes as usize)?;
        let noted = notes.lock().expect("nothing has panicked").clone();
        Ok::<_, Error>(noted)
    })
    .expect("there are threads");
    let of_leaders: Vec<Vec<Asked>> =
        noted.into_iter().map(|noted| noted.expect("a call")).filter(|noted| !noted.is_empty()).collect();
    let sent = |noted: &Vec<Asked>| {
        noted.iter().fold(Cost::default(), |sum, asked| match *asked {
            Asked::Send { bytes } => sum + Cost { messages: 1, bytes, steps: 0 },
            _ => sum,
        })
    };
    let busiest = of_leaders.iter().map(sent).max_by_key(|cost| cost.bytes).unwrap_or_default();
    of_leaders[0].iter().fold(busiest, |sum, asked| match *asked {
        Asked::Allgather { block } => sum + machine.leaders_allgather(block),
        Asked::Broadcast { bytes } => sum + machine.leaders_broadcast(bytes),
        Asked::Send { .. } => sum,
    })
}

/// The formulas of our calls are what their leaders ask for, in calls that wait and in calls that are started.
#[test]
fn our_formulas_agree_with_what_leaders_ask_for() {
    let allreduce: [Called; 2] = [
        |nodes, bytes| nodes.allreduce_in_place(&mut vec![1u8; bytes], ReduceOp::Sum),
        |nodes, bytes| nodes.start_allreduce(vec![1u8; bytes], ReduceOp::Sum)?.wait().map(drop),
    ];
    let allgather: [Called; 1] =
        [|nodes, bytes| nodes.allgather(&vec![1u8; bytes], &mut vec![0; bytes * nodes.size()])];
    let broadcast: [Called; 2] = [
        |nodes, bytes| nodes.broadcast(&mut vec![1u8; bytes], 0),
        |nodes, bytes| nodes.start_broadcast(vec![1u8; bytes], 0)?.wait().map(drop),
    ];
    let ours: [(&[Called], Formula); 3] = [
        (&allreduce, Machine::our_allreduce),
        (&allgather, Machine::our_allgather),
        (&broadcast, Machine::our_broadcast),
    ];
    // Around every threshold.
    let short: &[u64] = &[8, 48, 49, 73, 8 << 10, 16 << 10, (256 << 10) + 1];
    for (nodes, each, lens) in [(2, 1, &[72, 73, (4 << 20) + 1][..]), (2, 2, short), (4, 2, &[8, 8 << 10])] {
        let machine = Machine { nodes, each };
        for (calls, formula) in ours {
            for bytes in lens.iter().copied() {
                for (index, call) in calls.iter().enumerate() {
                    let expected = Cost { steps: 0, ..formula(machine, bytes) };
                    let cost = Cost { steps: 0, ..asked(machine, bytes, *call) };
                    assert_eq!(cost, expected, "{machine:?}, {bytes} bytes, form {index}");
                }
            }
        }
    }
}

const MACHINES: [(u64, &[u64]); 5] = [
    (2, &[1, 8, 32, 128]),
    (8, &[1, 8, 32, 128]),
    (64, &[1, 8, 32, 128]),
    (256, &[1, 32, 128]),
    (1024, &[1, 32, 128]),
];

type Algorithm = (&'static str, Formula);

fn tables() -> String {
    let allreduce: &[Algorithm] = &[
        ("ours", Machine::our_allreduce),
        ("recursive doubling", Machine::recursive_doubling),
        ("Rabenseifner", Machine::rabenseifner),
        ("ring", Machine::ring),
    ];
    let allgather: &[Algorithm] = &[
        ("ours", Machine::our_allgather),
        ("recursive doubling", Machine::doubling_allgather),
        ("ring", Machine::ring_allgather),
    ];
    let broadcast: &[Algorithm] =
        &[("ours", Machine::our_broadcast), ("binomial tree", Machine::binomial_broadcast)];
    let mut text = String::new();
    for (what, bytes, algorithms) in [
        ("An allreduce of 8 bytes", 8, allreduce),
        ("An allreduce of 8 KiB", 8 << 10, allreduce),
        ("An allreduce of 4 MiB", 4 << 20, allreduce),
        ("An allgather of 1 KiB a rank", 1 << 10, allgather),
        ("A broadcast of 4 MiB", 4 << 20, broadcast),
    ] {
        table(&mut text, what, bytes, algorithms);
    }
    text
}

fn table(text: &mut String, what: &str, bytes: u64, algorithms: &[Algorithm]) {
    let names: Vec<&str> = algorithms.iter().map(|(name, _)| *name).collect();
    let dashes = vec!["---"; names.len() + 1].join(" | ");
    write!(
        text,
        "\n{what}: messages, bytes, steps\n\n| nodes × ranks | {} |\n| {dashes} |\n",
        names.join(" | ")
    )
    .expect("a string takes all");
    for (nodes, ranks) in MACHINES {
        for each in ranks {
            let machine = Machine { nodes, each: *each };
            let cells: Vec<String> = algorithms.iter().map(|(_, cost)| cell(cost(machine, bytes))).collect();
            writeln!(text, "| {nodes} × {each} | {} |", cells.join(" | ")).expect("a string takes all");
        }
    }
}

fn cell(cost: Cost) -> String {
    format!("{}, {}, {}", short(cost.messages), size(cost.bytes), short(cost.steps))
}

fn short(number: u64) -> String {
    let digits = number.to_string();
    let groups: Vec<&str> =
        digits.as_bytes().rchunks(3).rev().map(|group| std::str::from_utf8(group).expect("digits")).collect();
    groups.join(",")
}

/// With three digits.
fn size(bytes: u64) -> String {
    let (mut value, mut unit) = (bytes as f64, 0);
    while value >= 1000.0 {
        (value, unit) = (value / 1024.0, unit + 1);
    }
    let digits = if unit == 0 || value >= 100.0 { 0 } else { if value >= 10.0 { 1 } else { 2 } };
    format!("{value:.digits$} {}", ["B", "KiB", "MiB", "GiB", "TiB"][unit])
}

const BEGIN: &str = "<!-- model: begin -->\n";
const END: &str = "<!-- model: end -->";

#[test]
fn the_tables_follow_from_the_model() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("docs/nodes.md");
    let text = fs::read_to_string(&path).expect("the page is there");
    let (before, rest) = text.split_once(BEGIN).expect("where the tables begin");
    let (_, after) = rest.split_once(END).expect("where they end");
    let expected = format!("{before}{BEGIN}{}\n{END}{after}", tables());
    if std::env::var_os("INTRANODE_WRITE_TABLES").is_some() {
        fs::write(&path, &expected).expect("the page can be written");
        return;
    }
    assert!(text == expected, "INTRANODE_WRITE_TABLES=1 writes the tables of docs/nodes.md anew");
}
