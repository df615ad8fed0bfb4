//! The tables.

use crate::measured::{Alone, Comparison};
use crate::model::barrier::Rule;
use crate::model::machine::{CONSTANTS, Cost, Machine};
use crate::study::{Choice, FEW, RANKS, RULES, Sweep, crossover_of};

fn table(header: &[&str], rows: impl Iterator<Item = Vec<String>>) {
    println!("| {} |", header.join(" | "));
    println!("| --- |{}", " --: |".repeat(header.len() - 1));
    rows.for_each(|row| println!("| {} |", row.join(" | ")));
    println!();
}

fn name(rule: Rule) -> String {
    match rule {
        Rule::Of(size) => format!("groups of {size}"),
        Rule::Eight => "eight groups".to_owned(),
        Rule::Root => "groups of √ranks".to_owned(),
    }
}

fn or_none(ranks: Option<usize>) -> String {
    ranks.map_or("none".to_owned(), |ranks| ranks.to_string())
}

pub(crate) fn constants() {
    println!("## Constants\n");
    let header = ["constant", "unit", "EPYC", "Xeon", "Xeon Phi", "source"];
    table(
        &header,
        CONSTANTS.iter().map(|constant| {
            let values = constant.values.iter().map(f64::to_string);
            let (first, last) = ([constant.meaning, constant.unit], [constant.source]);
            first.map(str::to_owned).into_iter().chain(values).chain(last.map(str::to_owned)).collect()
        }),
    );
}

pub(crate) fn measured(found: Option<(Alone, Vec<Comparison>)>) {
    println!("## Two processors of this machine, measured in this run, and the model's two cores\n");
    let Some((alone, all)) = found else {
        return println!("Not measured: this process may not use two processors.\n");
    };
    let Alone { atomic, pause, barrier } = alone;
    println!(
        "Given to the model: a compare-exchange of an own line {atomic:.4} µs, a poll {pause:.4} µs, the library's barrier \
         of one rank {barrier:.4} µs, and the line as it was just before and after each measurement.\n"
    );
    table(
        &["µs", "steady blocks", "line", "measured", "modelled"],
        all.into_iter().map(|Comparison { what, blocks, median }| {
            let times = [median.line, median.measured, median.modelled].map(|time| format!("{time:.4}"));
            [what, blocks.to_string()].into_iter().chain(times).collect()
        }),
    );
}

pub(crate) fn times(sweep: &Sweep) {
    println!("## {}\n", sweep.machine.name);
    println!("From the last arrival until all have left, in µs: least / median.\n");
    let names = RULES.map(name);
    let header: Vec<&str> = ["ranks", "flat"].into_iter().chain(names.iter().map(String::as_str)).collect();
    table(
        &header,
        sweep.rows.iter().map(|row| {
            let times = [row.flat].into_iter().chain(row.groups);
            let shown = times.map(|took| format!("{:.2} / {:.2}", took.least, took.median));
            [row.ranks.to_string()].into_iter().chain(shown).collect()
        }),
    );
}

/// `skewed` and `back_to_back` have the same machines.
pub(crate) fn crossovers(skewed: &[Sweep], back_to_back: &[Sweep]) {
    println!(
        "## Crossovers\n\nThe number of ranks from which on groups are never slower than flat: with skewed arrivals / back to back.\n"
    );
    let names = RULES.map(name);
    let header: Vec<&str> = ["machine"].into_iter().chain(names.iter().map(String::as_str)).collect();
    table(
        &header,
        skewed.iter().zip(back_to_back).map(|(skewed, at_once)| {
            let both = |rule| [skewed, at_once].map(|sweep| or_none(sweep.crossover(rule))).join(" / ");
            [skewed.machine.name.to_owned()].into_iter().chain((0..RULES.len()).map(both)).collect()
        }),
    );
}

pub(crate) fn choice(choice: Choice, sweeps: &[Sweep]) {
    println!("## Choice\n");
    let Choice { rule, threshold, worst } = choice;
    println!(
        "**{}, from {threshold} ranks on**: at most {worst:.2} times the fastest shape, on any of these machines, with any of \
         these numbers of ranks, however they arrive. With other thresholds, and if readers of one L3 do share a fetch:\n",
        name(RULES[rule])
    );
    let sharing = sweeps.iter().filter(|sweep| sweep.machine.shared_fetch);
    table(
        &["threshold", "worst ratio", "worst ratio, fetches shared"],
        RANKS.into_iter().map(|threshold| {
            let worst = [Choice::new(sweeps, rule, threshold), Choice::new(sharing.clone(), rule, threshold)];
            [threshold.to_string()]
                .into_iter()
                .chain(worst.map(|choice| format!("{:.2}", choice.worst)))
                .collect()
        }),
    );
}

/// The sensitivity of the crossover to each constant.
pub(crate) fn sensitivity(machines: &[Machine], rule: Rule) {
    println!(
        "## Sensitivity\n\nThe crossover of {}, skewed arrivals, up to {FEW} ranks, with a constant halved / doubled.\n",
        name(rule)
    );
    let header: Vec<&str> =
        ["constant"].into_iter().chain(machines.iter().map(|machine| machine.name)).collect();
    let with = |machine: &Machine, cost: Cost, factor: f64| {
        or_none(crossover_of(&machine.clone().with(cost, factor * machine.value(cost)), rule))
    };
    let unchanged = machines.iter().map(|machine| or_none(crossover_of(machine, rule)));
    let unchanged: Vec<String> = ["(as it is)".to_owned()].into_iter().chain(unchanged).collect();
    let changed = CONSTANTS.iter().map(|constant| {
        let both = machines
            .iter()
            .map(|machine| [0.5, 2.0].map(|factor| with(machine, constant.cost, factor)).join(" / "));
        [constant.meaning.to_owned()].into_iter().chain(both).collect()
    });
    table(&header, [unchanged].into_iter().chain(changed));
}

/// Published results, and the model's for the same question.
pub(crate) fn published(epyc: &Sweep, phi: &Sweep) {
    println!("## Published results\n");
    let ratio = |sweep: &Sweep, ranks: usize, rule: Rule| {
        let place = RULES.iter().position(|other| *other == rule).expect("it is compared");
        let row = sweep.row(ranks);
        format!("{:.2}", row.flat.median / row.groups[place].median)
    };
    let rows = [
        (
            "Open MPI's acoll, by AMD: hierarchical by L3 is the default barrier (shown at 128 ranks, EPYC 9755)",
            "flat / groups of 8, EPYC, 128 ranks",
            ratio(epyc, 128, Rule::Of(8)),
        ),
        (
            "Open MPI's xhc: the barrier's default hierarchy is NUMA node, socket; no level for the L3",
            "flat / groups of 32, EPYC, 128 ranks",
            ratio(epyc, 128, Rule::Of(32)),
        ),
        (
            "Panigrahi et al.: on Xeon Phi tag directories limit readers of one line; avoiding that, a barrier 9 × as fast as Intel MPI's",
            "flat / groups of 8, Xeon Phi, 64 ranks",
            ratio(phi, 64, Rule::Of(8)),
        ),
    ];
    table(
        &["found", "asked of the model", "ratio"],
        rows.into_iter().map(|(found, asked, ratio)| vec![found.to_owned(), asked.to_owned(), ratio]),
    );
}
