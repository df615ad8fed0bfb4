//! The panic message at the end of a rank's standard error.

/// Characters of a message that are repeated; the output above has the rest.
const MAX_CHARACTERS: usize = 300;

/// The location and the message of the last panic, in one line.
pub(crate) fn find(stderr: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(stderr);
    let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
    // thread 'main' (4711) panicked at src/main.rs:3:5:
    let at = lines.iter().rposition(|line| line.starts_with("thread '") && line.contains(" panicked at "))?;
    let place = lines[at].split_once(" panicked at ")?.1.trim_end_matches(':');
    let is_message = |line: &&&str| {
        !line.starts_with("note: ") && !line.starts_with("stack backtrace:") && !line.starts_with("thread '")
    };
    let message: Vec<&str> = lines[at + 1..].iter().take_while(is_message).copied().collect();
    let mut message = message.join(" ").trim().to_owned();
    if let Some((end, _)) = message.char_indices().nth(MAX_CHARACTERS) {
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
    use super::find;

    #[test]
    fn a_panic_becomes_one_line() {
        let text = "starting\n\nthread 'main' (77) panicked at src/main.rs:2:5:\nleft: 1\nright: 2\n\
                    note: run with `RUST_BACKTRACE=1` environment variable to display a backtrace\n";
        let found = "panicked at src/main.rs:2:5: left: 1 right: 2";
        assert_eq!(find(text.as_bytes()).as_deref(), Some(found));
        let with_backtrace = text.replace("note: run", "stack backtrace:\n   0: main\nnote: run");
        assert_eq!(find(with_backtrace.as_bytes()).as_deref(), Some(found));
    }

    #[test]
    fn the_last_panic_counts() {
        let text = "thread 'a' panicked at a.rs:1:1:\none\nthread 'b' panicked at b.rs:1:1:\ntwo\n";
        assert_eq!(find(text.as_bytes()).as_deref(), Some("panicked at b.rs:1:1: two"));
    }

    #[test]
    fn other_text_is_no_panic() {
        for text in ["", "error: nothing panicked at all\n", "\u{0}\u{1}", "thread 'x' is fine\n"] {
            assert_eq!(find(text.as_bytes()), None, "{text:?}");
        }
    }

    #[test]
    fn long_messages_are_cut_between_characters() {
        let text = format!("thread 'main' panicked at a.rs:1:1:\n{}\n", "ä".repeat(1000));
        let found = find(text.as_bytes()).unwrap();
        assert!(found.ends_with("ä…") && found.len() < 700, "{found}");
    }
}
