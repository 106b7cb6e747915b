//! A file's change as `diff -u` shows it.

/// Lines shown around a change.
const AROUND: usize = 3;

/// The most pairs of lines that are compared for the smallest change; beyond, the whole middle is shown as changed.
const PAIRS: usize = 4 << 20;

/// One line of the way from the one text to the other.
#[derive(Clone, Copy)]
enum Edit<'a> {
    Keep(&'a str),
    Remove(&'a str),
    Add(&'a str),
}

/// The change of the file `path` from `before` to `after`, with `/dev/null` for one that is not there; empty when there is none.
pub fn unified(path: &str, before: Option<&str>, after: Option<&str>) -> String {
    if before == after {
        return String::new();
    }
    let name = |text: Option<&str>| if text.is_some() { path } else { "/dev/null" };
    let mut out = format!("--- {}\n+++ {}\n", name(before), name(after));
    let (old, new) = (lines(before), lines(after));
    let edits = edits(&old, &new);
    let changed: Vec<usize> = edits
        .iter()
        .enumerate()
        .filter(|(_, edit)| !matches!(edit, Edit::Keep(_)))
        .map(|(at, _)| at)
        .collect();
    let mut rest = &changed[..];
    while let [first, ..] = rest {
        let mut count = 1;
        while count < rest.len() && rest[count] - rest[count - 1] <= 2 * AROUND {
            count += 1;
        }
        let from = first.saturating_sub(AROUND);
        let to = (rest[count - 1] + AROUND + 1).min(edits.len());
        rest = &rest[count..];
        hunk(&mut out, &edits, from, to);
    }
    out
}

fn hunk(out: &mut String, edits: &[Edit<'_>], from: usize, to: usize) {
    let count = |edits: &[Edit<'_>]| {
        let old = edits.iter().filter(|edit| !matches!(edit, Edit::Add(_))).count();
        let new = edits.iter().filter(|edit| !matches!(edit, Edit::Remove(_))).count();
        (old, new)
    };
    let (old_before, new_before) = count(&edits[..from]);
    let (old, new) = count(&edits[from..to]);
    // An empty side is at the line before it.
    let start = |before: usize, count: usize| if count == 0 { before } else { before + 1 };
    let range = |before, count| match count {
        1 => format!("{}", start(before, count)),
        _ => format!("{},{count}", start(before, count)),
    };
    out.push_str(&format!("@@ -{} +{} @@\n", range(old_before, old), range(new_before, new)));
    for edit in &edits[from..to] {
        let (sign, line) = match edit {
            Edit::Keep(line) => (' ', line),
            Edit::Remove(line) => ('-', line),
            Edit::Add(line) => ('+', line),
        };
        out.push(sign);
        out.push_str(line);
        if !line.ends_with('\n') {
            out.push_str("\n\\ No newline at end of file\n");
        }
    }
}

fn lines(text: Option<&str>) -> Vec<&str> {
    text.unwrap_or_default().split_inclusive('\n').collect()
}

/// The smallest change by the longest common subsequence of lines.
fn edits<'a>(old: &[&'a str], new: &[&'a str]) -> Vec<Edit<'a>> {
    let same = |one: &(&&str, &&str)| one.0 == one.1;
    let head = old.iter().zip(new).take_while(same).count();
    let tail = old[head..].iter().rev().zip(new[head..].iter().rev()).take_while(same).count();
    let (one, other) = (&old[head..old.len() - tail], &new[head..new.len() - tail]);
    let mut edits: Vec<Edit<'a>> = old[..head].iter().map(|line| Edit::Keep(line)).collect();
    if one.len().saturating_mul(other.len()) > PAIRS {
        edits.extend(one.iter().map(|line| Edit::Remove(line)));
        edits.extend(other.iter().map(|line| Edit::Add(line)));
    } else {
        middle(one, other, &mut edits);
    }
    edits.extend(old[old.len() - tail..].iter().map(|line| Edit::Keep(line)));
    edits
}

fn middle<'a>(one: &[&'a str], other: &[&'a str], edits: &mut Vec<Edit<'a>>) {
    let width = other.len() + 1;
    // For each pair of places, the most lines that the rests have in common.
    let mut common = vec![0_u32; (one.len() + 1) * width];
    for at in (0..one.len()).rev() {
        for to in (0..other.len()).rev() {
            common[at * width + to] = if one[at] == other[to] {
                common[(at + 1) * width + to + 1] + 1
            } else {
                common[(at + 1) * width + to].max(common[at * width + to + 1])
            };
        }
    }
    let (mut at, mut to) = (0, 0);
    while at < one.len() || to < other.len() {
        if at < one.len() && to < other.len() && one[at] == other[to] {
            edits.push(Edit::Keep(one[at]));
            (at, to) = (at + 1, to + 1);
        } else if to == other.len()
            || (at < one.len() && common[(at + 1) * width + to] >= common[at * width + to + 1])
        {
            edits.push(Edit::Remove(one[at]));
            at += 1;
        } else {
            edits.push(Edit::Add(other[to]));
            to += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::unified;

    #[test]
    fn a_new_file_a_gone_one_and_a_changed_one() {
        assert_eq!(unified("/f", None, Some("a\nb\n")), "--- /dev/null\n+++ /f\n@@ -0,0 +1,2 @@\n+a\n+b\n");
        assert_eq!(
            unified("/f", Some("a"), None),
            "--- /f\n+++ /dev/null\n@@ -1 +0,0 @@\n-a\n\\ No newline at end of file\n"
        );
        let long: String = (1..=20).map(|line| format!("{line}\n")).collect();
        let changed = long.replace("\n3\n", "\nthree\n").replace("\n18\n", "\n");
        assert_eq!(
            unified("/f", Some(&long), Some(&changed)),
            "--- /f\n+++ /f\n@@ -1,6 +1,6 @@\n 1\n 2\n-3\n+three\n 4\n 5\n 6\n@@ -15,6 +15,5 @@\n 15\n 16\n 17\n-18\n 19\n 20\n"
        );
        assert_eq!(unified("/f", Some("same"), Some("same")), "");
    }
}
