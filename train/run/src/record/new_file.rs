//! A new file that an option names. It is written completely or not at all.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

use super::RecordError;
use super::error::unfit;

/// A file that does not exist yet, and can be written.
pub struct NewFile {
    path: PathBuf,
    option: &'static str,
}

impl NewFile {
    /// Creates the file's folder, and fails early if [`NewFile::write`] would fail. Errors name this option.
    ///
    /// # Errors
    /// If the file exists or cannot be written.
    pub fn at(path: &Path, option: &'static str) -> Result<NewFile, RecordError> {
        let file = NewFile {
            path: path.to_owned(),
            option,
        };
        if path.symlink_metadata().is_ok() {
            return Err(file.exists());
        }
        std::fs::create_dir_all(file.folder()).map_err(|e| file.unwritable(&e))?;
        file.aside().map(drop)?;
        Ok(file)
    }

    /// Returns its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes it.
    ///
    /// # Errors
    /// If it exists by now, or cannot be written.
    pub fn write(&self, text: &str) -> Result<(), RecordError> {
        let mut aside = self.aside()?;
        aside
            .write_all(text.as_bytes())
            .and_then(|()| aside.as_file().sync_data())
            .map_err(|e| self.unwritable(&e))?;
        match aside.persist_noclobber(&self.path) {
            Ok(_) => Ok(()),
            Err(e) if e.error.kind() == io::ErrorKind::AlreadyExists => Err(self.exists()),
            Err(e) => Err(self.unwritable(&e.error)),
        }
    }

    fn folder(&self) -> &Path {
        let folder = self.path.parent();
        let folder = folder.filter(|folder| *folder != Path::new(""));
        folder.unwrap_or(Path::new("."))
    }

    /// Creates a temporary file in its folder.
    fn aside(&self) -> Result<NamedTempFile, RecordError> {
        #[cfg_attr(not(unix), expect(unused_mut))]
        let mut builder = tempfile::Builder::new();
        // A temporary file is private to its user; the new file gets the usual permissions.
        #[cfg(unix)]
        builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
        let aside = builder.tempfile_in(self.folder());
        aside.map_err(|e| self.unwritable(&e))
    }

    fn exists(&self) -> RecordError {
        let problem = format!("exists: choose another place with {}", self.option);
        unfit(&self.path, &problem)
    }

    fn unwritable(&self, error: &io::Error) -> RecordError {
        let reason = error.to_string();
        let reason = match error.kind() {
            io::ErrorKind::NotADirectory | io::ErrorKind::AlreadyExists => {
                "a part of its path is a file"
            }
            // Without the path of the temporary file.
            _ => reason.split(" at path ").next().unwrap_or_default(),
        };
        let option = self.option;
        let problem = format!("cannot be written: {reason}: choose another place with {option}");
        unfit(&self.path, &problem)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_overwritten_and_nothing_is_left_before() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("folder/new.txt");
        let file = NewFile::at(&path, "--out").unwrap();
        let names = || {
            std::fs::read_dir(home.path().join("folder"))
                .unwrap()
                .count()
        };
        assert_eq!(names(), 0);
        file.write("all of it").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "all of it");
        // Another program made it in the meantime.
        let refused = file.write("other").unwrap_err().to_string();
        assert!(
            refused.ends_with("new.txt exists: choose another place with --out"),
            "{refused}"
        );
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "all of it");
        assert_eq!(names(), 1);
        let early = NewFile::at(&path, "--keep").err().unwrap().to_string();
        assert!(
            early.ends_with("exists: choose another place with --keep"),
            "{early}"
        );
        let below = NewFile::at(&path.join("more"), "--out")
            .err()
            .unwrap()
            .to_string();
        assert!(below.contains("a part of its path is a file"), "{below}");
    }
}
