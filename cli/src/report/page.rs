//! The page of a report: HTML with its style and its picture inside, which refers to nothing outside.

use std::fmt::{self, Display, Formatter, Write};

use super::summary::{Rank, Summary};

const STYLE: &str = "\
body{font:15px/1.5 system-ui,sans-serif;margin:2em auto;max-width:72em;padding:0 1em;color:#222;background:#fff}\
h1{font-size:1.5em}h2{font-size:1.2em;margin-top:2em}table{border-collapse:collapse;margin:.5em 0}\
th,td{padding:.15em .7em;text-align:right;border-bottom:1px solid #ddd;font-variant-numeric:tabular-nums}\
th{background:#f4f4f4}th.l,td.l{text-align:left}td.mark{background:#fde3d9}\
dt{font-weight:600}dd{margin:0 0 .5em 1.5em}.key span{display:inline-block;width:.9em;height:.9em;margin:0 .3em 0 1em}\
svg text{font:12px system-ui,sans-serif}";

/// What a bar consists of: its name and colour.
const PARTS: [(&str, &str); 3] =
    [("outside of calls", "#cfd8dc"), ("in calls", "#4b8bbe"), ("waiting for other ranks", "#e2743b")];

/// A table of all pairs of ranks is too large for more.
const MATRIX_RANKS: usize = 32;

/// The pairs that are listed instead.
const PAIRS: usize = 64;

pub(super) fn page(summary: &Summary) -> String {
    let mut page = String::new();
    // Writing to a string cannot fail.
    let _ = write_page(&mut page, summary);
    page
}

/// Text, so that it means itself in HTML.
struct Text<'a>(&'a str);

impl Display for Text<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for character in self.0.chars() {
            match character {
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '&' => f.write_str("&amp;")?,
                '"' => f.write_str("&quot;")?,
                '\'' => f.write_str("&#39;")?,
                // Not allowed in a page at all.
                other if other.is_control() && other != '\n' => f.write_str("\u{fffd}")?,
                other => f.write_char(other)?,
            }
        }
        Ok(())
    }
}

fn write_page(page: &mut String, summary: &Summary) -> fmt::Result {
    let job = Text(&summary.job);
    write!(
        page,
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n<title>intranode: {job}</title>\n\
         <style>{STYLE}</style>\n</head>\n<body>\n<h1>{job}: {} ranks, {} s</h1>\n",
        summary.ranks.len(),
        seconds(summary.seconds),
    )?;
    let program = summary.program.join(" ");
    writeln!(page, "<p><code>{}</code></p>", Text(&program))?;
    let ended = match &summary.failure {
        None => "Every rank ended with status 0.".to_owned(),
        Some(failure) => format!("The job ended with status {}: {failure}.", summary.status),
    };
    writeln!(page, "<p>{}</p>", Text(&ended))?;
    write_late(page, summary)?;
    write_bars(page, summary)?;
    write_ranks(page, summary)?;
    write_unfinished(page, summary)?;
    write_operations(page, summary)?;
    write_waits(page, summary)?;
    write_notes(page, summary)?;
    page.write_str("</body>\n</html>\n")
}

fn write_late(page: &mut String, summary: &Summary) -> fmt::Result {
    match summary.latest() {
        Some(rank) => writeln!(
            page,
            "<p>Rank {} was late most often: the others waited for it last at {} rounds, {} s in all.</p>",
            rank.rank,
            rank.late_rounds,
            seconds(rank.late_seconds),
        ),
        None => writeln!(page, "<p>No rank had to wait long for another.</p>"),
    }
}

/// A bar a rank: where its time went.
fn write_bars(page: &mut String, summary: &Summary) -> fmt::Result {
    let (left, whole, step) = (70.0, 800.0, 22.0);
    let height = summary.ranks.len() as f64 * step + 20.0;
    page.write_str("<h2>Where the time went</h2>\n<p class=\"key\">")?;
    for (name, colour) in PARTS {
        write!(page, "<span style=\"background:{colour}\"></span>{name}")?;
    }
    let width = left + whole + 10.0;
    writeln!(
        page,
        "</p>\n<svg width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" role=\"img\" \
         aria-label=\"A bar for each rank\">"
    )?;
    let scale = whole / summary.seconds.max(1e-9);
    for rank in &summary.ranks {
        let y = rank.rank as f64 * step;
        writeln!(page, "<text x=\"0\" y=\"{}\">rank {}</text>", y + 15.0, rank.rank)?;
        let (from, total) = presence(rank, summary.seconds);
        let wait = rank.wait_seconds.min(total);
        let call = (rank.call_seconds - rank.wait_seconds).clamp(0.0, total - wait);
        let mut x = left + from * scale;
        for ((name, colour), part) in PARTS.iter().zip([total - call - wait, call, wait]) {
            let width = part * scale;
            writeln!(
                page,
                "<rect x=\"{x:.2}\" y=\"{:.2}\" width=\"{width:.2}\" height=\"{}\" fill=\"{colour}\">\
                 <title>rank {}, {name}: {} s</title></rect>",
                y + 2.0,
                step - 5.0,
                rank.rank,
                seconds(part),
            )?;
            x += width;
        }
    }
    writeln!(page, "<text x=\"{left}\" y=\"{}\">0</text>", height - 4.0)?;
    writeln!(
        page,
        "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{} s</text>\n</svg>",
        left + whole,
        height - 4.0,
        seconds(summary.seconds)
    )
}

/// When a rank had joined, and how long it was there.
fn presence(rank: &Rank, job: f64) -> (f64, f64) {
    let Some(joined) = rank.joined_seconds else { return (0.0, 0.0) };
    (joined, (rank.left_seconds.unwrap_or(job) - joined).max(0.0))
}

/// The beginning of a table with these columns, of which the first `left` are text.
fn table(page: &mut String, columns: &[&str], left: usize) -> fmt::Result {
    page.write_str("<table>\n<tr>")?;
    for (index, column) in columns.iter().enumerate() {
        let class = if index < left { " class=\"l\"" } else { "" };
        write!(page, "<th{class}>{column}</th>")?;
    }
    page.write_str("</tr>\n")
}

fn write_ranks(page: &mut String, summary: &Summary) -> fmt::Result {
    page.write_str("<h2>Ranks</h2>\n")?;
    let columns = [
        "rank",
        "process",
        "joined, s",
        "left, s",
        "calls",
        "bytes",
        "in calls, s",
        "waiting, s",
        "parks",
        "wake-ups",
        "late rounds",
        "waited for, s",
    ];
    table(page, &columns, 0)?;
    let latest = summary.latest().map(|rank| rank.rank);
    for rank in &summary.ranks {
        let mark = if latest == Some(rank.rank) { " class=\"mark\"" } else { "" };
        let maybe = |time: Option<f64>| time.map_or("–".to_owned(), seconds);
        let pid = rank.pid.map_or("–".to_owned(), |pid| pid.to_string());
        writeln!(
            page,
            "<tr><td>{}</td><td>{pid}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td>\
             <td>{}</td><td>{}</td><td{mark}>{}</td><td>{}</td></tr>",
            rank.rank,
            maybe(rank.joined_seconds),
            maybe(rank.left_seconds),
            rank.calls,
            rank.bytes,
            seconds(rank.call_seconds),
            seconds(rank.wait_seconds),
            rank.parks,
            rank.wakes,
            rank.late_rounds,
            seconds(rank.late_seconds),
        )?;
    }
    page.write_str("</table>\n")
}

fn write_unfinished(page: &mut String, summary: &Summary) -> fmt::Result {
    if summary.ranks.iter().all(|rank| rank.unfinished.is_empty()) {
        return Ok(());
    }
    page.write_str("<h2>Calls that never returned</h2>\n<ul>\n")?;
    for rank in &summary.ranks {
        for call in &rank.unfinished {
            let waits = call.waits_for.map_or(String::new(), |other| format!(", waiting for rank {other}"));
            let (number, operation) = (rank.rank, call.operation);
            let since = seconds(call.since_seconds);
            writeln!(page, "<li>Rank {number} ended in {operation}{waits}, since {since} s.</li>")?;
        }
    }
    page.write_str("</ul>\n")
}

fn write_operations(page: &mut String, summary: &Summary) -> fmt::Result {
    page.write_str("<h2>Operations</h2>\n")?;
    let columns = [
        "operation",
        "rank",
        "calls",
        "bytes",
        "time, s",
        "a call, µs",
        "waiting, s",
        "parks",
        "wake-ups",
        "timed",
    ];
    table(page, &columns, 1)?;
    let all = summary.ranks.iter().flat_map(|rank| rank.operations.iter().map(move |one| (one, rank.rank)));
    let mut all: Vec<_> = all.collect();
    all.sort_by_key(|(one, rank)| (one.operation, *rank));
    for (one, rank) in all {
        writeln!(
            page,
            "<tr><td class=\"l\">{}</td><td>{rank}</td><td>{}</td><td>{}</td><td>{}</td><td>{:.2}</td><td>{}</td>\
             <td>{}</td><td>{}</td><td>{}</td></tr>",
            Text(one.operation),
            one.calls,
            one.bytes,
            seconds(one.seconds),
            one.seconds * 1e6 / one.calls.max(1) as f64,
            seconds(one.wait_seconds),
            one.parks,
            one.wakes,
            one.timed_calls,
        )?;
    }
    page.write_str("</table>\n")
}

/// Who has waited for whom.
fn write_waits(page: &mut String, summary: &Summary) -> fmt::Result {
    page.write_str(
        "<h2>Who waited for whom</h2>\n<p>Rounds and messages at which the rank of the row waited long, last for the rank \
         of the column; and the seconds of these waits.</p>\n",
    )?;
    let waited = |rank: &Rank, other: usize| {
        let found = rank.waited_for.iter().find(|waited| waited.rank == other);
        found.map_or(String::new(), |waited| format!("{} / {}", waited.rounds, seconds(waited.seconds)))
    };
    if summary.ranks.len() <= MATRIX_RANKS {
        let names: Vec<String> = summary.ranks.iter().map(|rank| format!("rank {}", rank.rank)).collect();
        let columns: Vec<&str> = ["waited"].into_iter().chain(names.iter().map(String::as_str)).collect();
        table(page, &columns, 1)?;
        for rank in &summary.ranks {
            write!(page, "<tr><td class=\"l\">rank {}</td>", rank.rank)?;
            for other in &summary.ranks {
                write!(page, "<td>{}</td>", waited(rank, other.rank))?;
            }
            page.write_str("</tr>\n")?;
        }
        return page.write_str("</table>\n");
    }
    let mut pairs: Vec<_> = summary
        .ranks
        .iter()
        .flat_map(|rank| rank.waited_for.iter().map(move |waited| (rank.rank, waited)))
        .collect();
    pairs.sort_by(|one, other| other.1.seconds.total_cmp(&one.1.seconds));
    writeln!(page, "<p>The {} pairs with the longest waits of {}.</p>", pairs.len().min(PAIRS), pairs.len())?;
    table(page, &["rank", "waited for rank", "rounds", "seconds"], 0)?;
    for (rank, waited) in pairs.iter().take(PAIRS) {
        let (other, rounds, time) = (waited.rank, waited.rounds, seconds(waited.seconds));
        writeln!(page, "<tr><td>{rank}</td><td>{other}</td><td>{rounds}</td><td>{time}</td></tr>")?;
    }
    page.write_str("</table>\n")
}

const NOTES: &str = "\
<h2>What the figures mean</h2>\n<dl>\n\
<dt>calls, bytes</dt><dd>Counted exactly. The bytes of a call are its number of elements times their size, as the call states \
it: the buffer of an allreduce or a broadcast, the own block of an allgather, all blocks of an allgatherv, the message of a send or \
a recv, the elements of a put, a get or an atomic. All communicators of a rank are added up.</dd>\n\
<dt>in calls, time</dt><dd>Of the calls that were timed (<i>timed</i>), the mean, times the number of calls, and every long wait. \
All calls are timed that move 4 KiB or more, or that bring data and take 10 µs or more; of others the first 32, \
and then one of 256, or of 8 with more ranks than processors. A put, a get or an atomic of less than 4 KiB takes less time than \
reading a clock: these are counted, and their time is not in it.</dd>\n\
<dt>waiting</dt><dd>Long waits for other ranks, all of which are timed: those of more than some hundred polls, which is a few \
microseconds; with more ranks than processors, those in which the rank sleeps. Shorter ones are a part of the time in calls.</dd>\n\
<dt>parks, wake-ups</dt><dd>How often a rank slept in the kernel, and how often it woke ranks that slept.</dd>\n\
<dt>late rounds, waited for</dt><dd>The rounds at which this rank was the last that another rank waited long for, and for how long; also each \
long wait for a message from this rank, or for it to receive one. \
Of the counts of the other ranks, the largest. A call has one round or several.</dd>\n\
<dt>joined, left</dt><dd>Since the start of the job. A rank that was killed has not left.</dd>\n\
</dl>\n";

fn write_notes(page: &mut String, summary: &Summary) -> fmt::Result {
    page.write_str(NOTES)?;
    for rank in summary.ranks.iter().filter(|rank| rank.communicators_not_recorded > 0) {
        let (number, missing) = (rank.rank, rank.communicators_not_recorded);
        writeln!(
            page,
            "<p>Rank {number} had more than eight communicators at a time: {missing} of them are not in these figures.</p>"
        )?;
    }
    for rank in summary.ranks.iter().filter(|rank| rank.pid.is_none()) {
        writeln!(page, "<p>Rank {} never joined the job, or could not count.</p>", rank.rank)?;
    }
    Ok(())
}

/// Seconds, with three digits that count.
fn seconds(time: f64) -> String {
    let digits = match time {
        _ if time >= 100.0 => 0,
        _ if time >= 1.0 => 2,
        _ if time >= 1e-3 => 4,
        _ => 7,
    };
    if time == 0.0 { "0".to_owned() } else { format!("{time:.digits$}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_means_itself() {
        let text = Text("<a href=\"x\">&'\u{1}").to_string();
        assert_eq!(text, "&lt;a href=&quot;x&quot;&gt;&amp;&#39;\u{fffd}");
    }

    #[test]
    fn times_have_digits_that_count() {
        let times = [0.0, 123.4, 1.234, 0.012_34, 0.000_001_2].map(seconds);
        assert_eq!(times, ["0", "123", "1.23", "0.0123", "0.0000012"]);
    }
}
