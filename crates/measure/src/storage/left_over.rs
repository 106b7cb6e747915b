//! What runs that were killed left in a VM.

use std::time::Duration;

use penstock_host::{Command, Place};

use crate::{network::lease::MARK, storage::FILE};

/// How long it may take: files of gigabytes are removed.
const TIMEOUT: Duration = Duration::from_secs(120);

/// Removes from the directory `$1` the directories that are named `$2-PID-NANOS-NUMBER` and belong to who asks, each with its file
/// `$5`; not those of the run `$3`, nor of one of whose processes one has the mark `$4PID-NANOS;`.
///
/// Who may write to `$1` may lay a link at any time: what is removed is in the directory that the shell itself went to, when that
/// is the one that was named.
const SCRIPT: &str = r#"
cd -- "$1" && top=$(pwd -P) || exit 0
for d in "./$2"-[0-9]*; do
    [ -d "$d" ] && [ ! -L "$d" ] && [ -O "$d" ] || continue
    rest=${d#"./$2-"}
    case $rest in
        *[!0-9-]* | -* | *- | *--* | *-*-*-*) continue ;;
        *-*-*) run=${rest%-*} ;;
        *) continue ;;
    esac
    [ "$run" != "$3" ] || continue
    ! grep -q -e "$4$run;" /proc/[0-9]*/environ 2>/dev/null || continue
    ( cd -- "$d" && [ "$(pwd -P)" = "${top%/}/${d#./}" ] && [ -O . ] && rm -f -- "$5" ) && rmdir -- "$d"
done
"#;

/// The mark of a run's processes.
pub(super) fn mark(run: &str) -> String {
    format!("storage-{run};")
}

/// The directory of a run, the `number`th of those that it makes. `form` begins with a directory.
pub(super) fn directory(form: &str, run: &str, number: usize) -> String {
    format!("{form}-{run}-{number}")
}

/// Removes from a directory in a VM what earlier runs made there under such a name, as far as that can be done: where it cannot, it
/// stays, and is no reason to measure nothing.
pub(super) fn remove(place: &dyn Place, parent: &str, name: &str, run: &str) {
    let mark = format!("{MARK}=storage-");
    let words = ["-c", SCRIPT, "penstock-measure", parent, name, run, &mark, FILE];
    let _ = place.run(&Command::new("sh").args(words).deadline(TIMEOUT));
}
