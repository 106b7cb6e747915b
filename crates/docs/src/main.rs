//! `make docs` runs this before and after mdBook.

use std::{env, path::Path, process::ExitCode};

use penstock_docs::{Problem, book, site, tree::SourceTree};

const USAGE: &str = "penstock-docs book DIRECTORY   writes the source of the site there, for mdBook
penstock-docs site DIRECTORY   follows every link of the site there
Both run at the top of the repository.";

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match words[..] {
        ["book", to] => make(Path::new(to)),
        ["site", at] => follow(Path::new(at)),
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match outcome {
        Ok(sentence) => {
            println!("{sentence}");
            ExitCode::SUCCESS
        }
        Err(problems) => {
            for problem in &problems {
                eprintln!("error: {problem}");
            }
            ExitCode::FAILURE
        }
    }
}

fn make(to: &Path) -> Result<String, Vec<Problem>> {
    let top = Path::new(".");
    let tree = SourceTree::read(top).map_err(|error| vec![Problem::io(top, &error)])?;
    let made = book::make(&tree, to)?;
    Ok(format!("{}: {} pages with {} links", to.display(), made.pages, made.links))
}

fn follow(at: &Path) -> Result<String, Vec<Problem>> {
    let (count, problems) = site::check(at).map_err(|error| vec![Problem::io(at, &error)])?;
    match problems.is_empty() {
        true => Ok(format!(
            "{}: {} pages, whose {} links ({} to a place in a page) lead somewhere",
            at.display(),
            count.files,
            count.links,
            count.fragments
        )),
        // The pages are below the directory that was named.
        false => Err(problems
            .into_iter()
            .map(|problem| Problem { file: at.join(&problem.file), ..problem })
            .collect()),
    }
}
