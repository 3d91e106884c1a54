import SQLiteStore
import SystemPackage

/// What is known of a program's directory: a recipe in YAML (`AppRecipe(reading:)`).
package struct AppRecipe: Sendable, Equatable {
    /// A check of a store: it opens, and the table has as many rows after the move as before.
    package struct Check: Sendable, Equatable {
        /// The store, relative to the directory.
        package let store: FilePath
        package let table: String
    }

    package var name: String
    /// The program, for people.
    package var about: String
    /// Where the directory usually is, as the recipe has it.
    package var directory: String?
    /// Each matches a SQLite store, else the directory isn't the program's.
    package var stores: [PathPattern] = []
    /// The other files that the program is known to have.
    package var files: [PathPattern] = []
    /// Files without value, such as caches and locks. A copy leaves them out, and they are removed from the old place.
    /// A symbolic link is left out itself, not what it leads to.
    package var leave: [PathPattern] = []
    /// Files without which a store is worth nothing. Each matches one, else nothing is moved.
    package var keys: [PathPattern] = []
    /// True if the program keeps absolute paths of its directory in its stores.
    package var rewrite = false
    package var after: [Check] = []

    /// Returns true for a file that the recipe knows.
    package func knows(_ path: FilePath) -> Bool {
        if (stores + files + leave + keys).contains(where: { $0.matches(path) }) { return true }
        return path.databaseOfSideFile.map { database in stores.contains { $0.matches(database) } } ?? false
    }
}
