//! What is generated for packages is accepted by the programs that it is for, where this machine has them.
#![allow(clippy::disallowed_methods)]

use std::{fs, path::Path, process::ExitCode};

use clap_complete::Shell;
use penstock_host::{Command, process};
use penstock_packages::{
    Program,
    completions::{SHELLS, completions},
    manual::pages,
};
use penstock_testkit::{
    needs::Lack,
    trials::{Outcome, Test, Trials},
};

fn main() -> ExitCode {
    let mut trials = Trials::from_arguments();
    let everywhere: [(&str, Test); 3] = [
        ("every_verb_that_help_shows_has_a_manual_page", every_verb_has_a_page),
        ("a_manual_page_has_every_option_of_its_verb", a_page_has_every_option),
        ("bash_takes_the_completions", || accepted(Shell::Bash, "bash", &["-n"])),
    ];
    trials.add(&None, everywhere);
    let others: [(&str, &str, Test); 4] = [
        ("groff", "groff_renders_each_manual_page_without_a_warning", groff_renders),
        ("mandoc", "mandoc_renders_each_manual_page_without_a_warning", mandoc_renders),
        ("zsh", "zsh_takes_the_completions", || accepted(Shell::Zsh, "zsh", &["-n"])),
        ("fish", "fish_takes_the_completions", || accepted(Shell::Fish, "fish", &["--no-execute"])),
    ];
    for (program, name, test) in others {
        // No install step brings them for this; in a tree `make packages-test` has them all.
        let lacking = process::find(program).is_none();
        let lacking = lacking.then(|| Lack::Machine(format!("{program} is not installed")));
        trials.add(&lacking, [(name, test)]);
    }
    trials.run()
}

/// Has `check` look at a file of each manual page; what it says is wrong.
fn each_page(check: impl Fn(&Path) -> Command) -> Outcome {
    let directory = tempfile::tempdir()?;
    let mut wrong = String::new();
    for program in Program::ALL {
        for page in pages(program.command(), "2026-11-25")? {
            let path = directory.path().join(&page.file);
            fs::write(&path, page.text)?;
            let output = check(&path).run()?;
            if !output.status.success() || !output.errors().is_empty() {
                wrong += &format!("{}: {}{}\n", page.file, output.errors(), output.text());
            }
        }
    }
    if wrong.is_empty() { Ok(()) } else { Err(wrong.into()) }
}

fn groff_renders() -> Outcome {
    each_page(|path| Command::new("groff").args(["-ww", "-man", "-Tutf8", "-z"]).arg(path))
}

fn mandoc_renders() -> Outcome {
    each_page(|path| Command::new("mandoc").args(["-Tlint", "-Wwarning"]).arg(path))
}

fn accepted(shell: Shell, program: &'static str, options: &[&str]) -> Outcome {
    let directory = tempfile::tempdir()?;
    assert!(SHELLS.contains(&shell));
    for of in Program::ALL {
        let (file, text) = completions(of.command(), shell);
        let path = directory.path().join(file);
        fs::write(&path, text)?;
        Command::new(program).args(options).arg(path).succeed()?;
    }
    Ok(())
}

fn every_verb_has_a_page() -> Outcome {
    let files = |program: Program| -> Result<Vec<String>, std::io::Error> {
        Ok(pages(program.command(), "2026-11-25")?.into_iter().map(|page| page.file).collect())
    };
    let penstock = files(Program::Penstock)?;
    for verb in Program::Penstock.command().get_subcommands().filter(|verb| !verb.is_hide_set()) {
        let file = format!("penstock-{}.1", verb.get_name());
        assert!(penstock.contains(&file), "{file}: {penstock:?}");
    }
    for file in ["penstock.1", "penstock-board-up.1"] {
        assert!(penstock.iter().any(|page| page == file), "{file}: {penstock:?}");
    }
    assert!(!penstock.iter().any(|file| file.contains("embedded") || file.contains("help")), "{penstock:?}");
    let switch = files(Program::Switch)?;
    for file in
        ["penstock-switch.1", "penstock-switch-run.1", "penstock-switch-ctl.1", "penstock-switch-ctl-set.1"]
    {
        assert!(switch.iter().any(|page| page == file), "{file}: {switch:?}");
    }
    let kubernetes = files(Program::Kubernetes)?;
    for file in ["penstock-kubernetes.1", "penstock-kubernetes-node.1", "penstock-kubernetes-manifests.1"] {
        assert!(kubernetes.iter().any(|page| page == file), "{file}: {kubernetes:?}");
    }
    // All packages can be installed.
    assert!(switch.iter().chain(&kubernetes).all(|file| !penstock.contains(file)));
    Ok(())
}

fn a_page_has_every_option() -> Outcome {
    let pages = pages(Program::Penstock.command(), "2026-11-25")?;
    let page = |file: &str| {
        let page = pages.iter().find(|page| page.file == file).unwrap_or_else(|| panic!("no {file}"));
        String::from_utf8_lossy(&page.text).replace("\\-", "-")
    };
    for (file, word) in [
        ("penstock-apply.1", "--confirm-within"),
        ("penstock-apply.1", "--json"),
        ("penstock-apply.1", "2026-11-25"),
        ("penstock.1", "EXIT STATUS"),
        ("penstock.1", "refused as unsafe"),
    ] {
        assert!(page(file).contains(word), "{file} has no {word}: {}", page(file));
    }
    assert!(!page("penstock-apply.1").contains("--attended"), "an option that is hidden");
    Ok(())
}
