import Glibc
import GroupContainers
import LinuxSystem
import StoreRelocation
import SystemPackage

/// The access of a Flatpak app's sandbox to the new place of what the app keeps below `~/.var/app/APP`. Flatpak itself
/// is asked: it knows the app's permissions and what the user has overridden.
package enum FlatpakAccess {
    /// Throws `RelocationFailure` if the app could not write to the new place. Does nothing for what is no app's, for
    /// an app that is not installed, and for the app's whole directory: Flatpak follows the link that it leaves.
    ///
    /// - Parameters:
    ///   - path: The directory or the store that moves.
    ///   - place: The directory that the app needs afterwards.
    package static func check(
        from path: FilePath, to place: FilePath, _ managers: ManagerCommands = .real
    ) throws(RelocationFailure) {
        guard let (app, directory) = application(path), let owner = FileStatus(following: directory)?.owner,
            let access = access(of: app, of: owner, to: place, managers), ["hidden", "read-only"].contains(access)
        else { return }
        let share = ["flatpak", "override", "--user", "--filesystem=\(word(place))", app]
        throw RelocationFailure(
            .notPermitted, code: "app_locked_out",
            "\(app) (Flatpak), which keeps \(PrintablePath(path)), could not use \(PrintablePath(place)): its sandbox "
                + (access == "hidden" ? "hides that" : "may only read that"),
            remedy: isShareable(place)
                ? "allow it: " + (owner == geteuid() ? share : managers.words(share, for: owner)).command
                : "name another place: Flatpak lets no app have this one")
    }

    /// Returns Flatpak's word for the access; nil without an answer.
    private static func access(
        of app: String, of owner: uid_t, to place: FilePath, _ managers: ManagerCommands
    ) -> String? {
        func ask(_ question: String) -> String? {
            let words = ["env", "LC_ALL=C.UTF-8", "flatpak", "info", question, app]
            let answer = managers.ask(managers.words(words, for: owner))
            return answer.status == 0 ? answer.output : nil
        }
        guard let access = ask("--file-access=\(place.string)")?.split(separator: "\n").first else { return nil }
        guard access == "hidden", FileStatus(following: place) == nil, let context = ask("--show-permissions") else {
            return String(access)
        }
        // What does not exist yet is hidden, also if the app is to have it. The list is escaped once or twice.
        let list = context.split(separator: "\n").first { $0.hasPrefix("filesystems=") } ?? ""
        let shared = ";\(list.dropFirst("filesystems=".count));".filter { $0 != "\\" }
        let isShared = ["", ":rw", ":create"].contains { mode in
            shared.contains(";\(place.string.filter { $0 != "\\" })\(mode);")
        }
        return isShared ? nil : String(access)
    }

    /// Returns a path as `--filesystem=` takes it: a colon begins a mode.
    private static func word(_ place: FilePath) -> String {
        place.string.replacing("\\", with: #"\\"#).replacing(":", with: #"\:"#)
    }

    /// Returns the app that has the path below its directory, and that directory.
    private static func application(_ path: FilePath) -> (String, FilePath)? {
        let components = Array(path.components)
        for index in components.indices.dropFirst(2) where index + 1 < components.endIndex {
            let name = components[index].string
            guard components[index - 2] == ".var", components[index - 1] == "app",
                ControlGroup.isApplication(name[...])
            else { continue }
            return (name, FilePath(root: path.root, components[...index]))
        }
        return nil
    }

    /// False for places that Flatpak keeps for itself (`flatpak-exports.c`), whatever an app asks for, and for names
    /// that it doesn't take.
    private static func isShareable(_ place: FilePath) -> Bool {
        let own = [
            "app", "bin", "dev", "etc", "lib", "lib32", "lib64", "proc", "sbin", "usr", "run/flatpak", "run/host",
        ]
        return String(validating: place.bytes, as: UTF8.self) != nil
            && !place.bytes.contains { $0 < 0x20 || $0 == 0x7F }
            && !own.contains { place.starts(with: FilePath("/" + $0)) }
    }
}
