//! Why a rank has failed, by what it wrote last.

/// So many characters of a message are repeated; the rest can be read above.
const LONGEST: usize = 300;

/// The message of the last panic in the end of a rank's standard error, with its place, in one line.
pub(crate) fn panic(text: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(text);
    let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
    // thread 'main' (4711) panicked at src/main.rs:3:5:
    let at = lines.iter().rposition(|line| line.starts_with("thread '") && line.contains(" panicked at "))?;
    let place = lines[at].split_once(" panicked at ")?.1.trim_end_matches(':');
    let is_message = |line: &&&str| {
        !line.starts_with("note: ") && !line.starts_with("stack backtrace:") && !line.starts_with("thread '")
    };
    let message: Vec<&str> = lines[at + 1..].iter().take_while(is_message).copied().collect();
    let mut message = message.join(" ").trim().to_owned();
    if let Some((end, _)) = message.char_indices().nth(LONGEST) {
        message.truncate(end);
        message.push('…');
    }
    Some(if message.is_empty() {
        format!("panicked at {place}")
    } else {
        format!("panicked at {place}: {message}")
    })
}

#[cfg(test)]
mod tests {
    use super::panic;

    #[test]
    fn a_panic_is_told_in_one_line() {
        let text = "starting\n\nthread 'main' (77) panicked at src/main.rs:2:5:\nleft: 1\nright: 2\n\
                    note: run with `RUST_BACKTRACE=1` environment variable to display a backtrace\n";
        let told = "panicked at src/main.rs:2:5: left: 1 right: 2";
        assert_eq!(panic(text.as_bytes()).as_deref(), Some(told));
        let with_backtrace = text.replace("note: run", "stack backtrace:\n   0: main\nnote: run");
        assert_eq!(panic(with_backtrace.as_bytes()).as_deref(), Some(told));
    }

    #[test]
    fn the_last_one_counts() {
        let text = "thread 'a' panicked at a.rs:1:1:\none\nthread 'b' panicked at b.rs:1:1:\ntwo\n";
        assert_eq!(panic(text.as_bytes()).as_deref(), Some("panicked at b.rs:1:1: two"));
    }

    #[test]
    fn other_text_is_no_panic() {
        for text in ["", "error: nothing panicked at all\n", "\u{0}\u{1}", "thread 'x' is fine\n"] {
            assert_eq!(panic(text.as_bytes()), None, "{text:?}");
        }
    }

    #[test]
    fn long_messages_are_cut_between_characters() {
        let text = format!("thread 'main' panicked at a.rs:1:1:\n{}\n", "ä".repeat(1000));
        let told = panic(text.as_bytes()).unwrap();
        assert!(told.ends_with("ä…") && told.len() < 700, "{told}");
    }
}
