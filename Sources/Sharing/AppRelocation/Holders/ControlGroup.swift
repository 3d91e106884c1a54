import GroupContainers
import Glibc

/// What manages a process, as its control group tells: a pure function of `/proc/PID/cgroup` (cgroups(7)).
enum ControlGroup: Equatable, Sendable {
    case managed(ManagedProgram)
    /// Nothing that can stop the process and start it again; the words say what it belongs to.
    case unmanaged(String)

    /// - Parameters:
    ///   - text: The content of `/proc/PID/cgroup`.
    ///   - flatpakInfo: The content of `/.flatpak-info` as the process sees it; nil without one.
    init(_ text: String, flatpakInfo: String?) {
        var components = Self.components(text)
        let user = Self.user(&components)
        if let app = flatpakInfo.flatMap(Self.application) ?? components.lazy.compactMap(Self.flatpak).first {
            // The user's systemd starts it again, with the environment of the session.
            self =
                user == nil
                ? .unmanaged("Flatpak's \(app), outside of a user's systemd")
                : .managed(ManagedProgram(.flatpak, user: user, app))
            return
        }
        self = components.lazy.compactMap { Self.manager($0, user) }.first ?? .unmanaged("no service")
    }

    /// The path's components below the root of the hierarchy that systemd uses, without its escapes.
    private static func components(_ text: String) -> [String] {
        // Only the path may have colons.
        let lines = text.split(separator: "\n")
            .map { $0.split(separator: ":", maxSplits: 2, omittingEmptySubsequences: false) }
        func path(_ isWanted: ([Substring]) -> Bool) -> Substring? {
            lines.first { $0.count > 1 && isWanted($0) }?.last { $0.hasPrefix("/") }
        }
        // systemd's own hierarchy beside those of the first version, else the second version's only one.
        let named = path { $0[1] == "name=systemd" }
        let unified = path { $0[0] == "0" }
        let first = [named, unified].compactMap { $0 }.first { $0 != "/" }
        let engine = path { $0.last.map { $0.contains("docker") || $0.contains("libpod") } ?? false }
        return (first ?? engine ?? "").split(separator: "/").map { String($0.hasPrefix("_") ? $0.dropFirst() : $0) }
    }

    /// Removes what leads to a user's service manager. Returns the user, or nil if there is none.
    private static func user(_ components: inout [String]) -> uid_t? {
        for (index, component) in components.enumerated() {
            guard component.hasPrefix("user@"), component.hasSuffix(".service"),
                let user = uid_t(component.dropFirst(5).dropLast(8))
            else { continue }
            components.removeFirst(index + 1)
            return user
        }
        return nil
    }

    private static func manager(_ component: String, _ user: uid_t?) -> ControlGroup? {
        for (prefix, engine) in [("libpod-", ManagedProgram.Manager.podman), ("docker-", .docker)] {
            guard component.hasPrefix(prefix) else { continue }
            let id = component.dropFirst(prefix.count).prefix { $0 != "." }
            if isContainer(id) { return .managed(ManagedProgram(engine, user: user, String(id))) }
        }
        // Without systemd, the engine names the group by the container alone.
        if isContainer(component[...]) { return .managed(ManagedProgram(.docker, user: user, component)) }
        if component.hasPrefix("kubepods") { return .unmanaged("a pod of Kubernetes") }
        if component.hasSuffix(".service") { return .managed(ManagedProgram(.systemd, user: user, component)) }
        if component.hasSuffix(".scope") { return .unmanaged("\(component), which systemd can't start again") }
        return nil
    }

    private static func isContainer(_ id: Substring) -> Bool { id.count == 64 && id.allSatisfy { $0.isHexDigit } }

    /// `app-flatpak-APP-NUMBER.scope`
    private static func flatpak(_ component: String) -> String? {
        guard component.hasPrefix("app-flatpak-"), component.hasSuffix(".scope"),
            let dash = component.lastIndex(of: "-")
        else { return nil }
        let app = component[..<dash].dropFirst("app-flatpak-".count)
        return isApplication(app) ? String(app) : nil
    }

    /// The application's name in a `.flatpak-info` (flatpak-metadata(5)).
    private static func application(_ info: String) -> String? {
        var isSection = false
        for line in info.split(separator: "\n") {
            if line.hasPrefix("[") { isSection = line == "[Application]" }
            if isSection, line.hasPrefix("name="), isApplication(line.dropFirst(5)) { return String(line.dropFirst(5)) }
        }
        return nil
    }

    /// True for what can be the name of a D-Bus service, as applications' names are.
    static func isApplication(_ name: Substring) -> Bool {
        name.contains(".") && !name.hasPrefix("-")
            && name.unicodeScalars.allSatisfy {
                $0.isASCII && ($0.properties.isAlphabetic || ("0"..."9").contains($0) || ["-", ".", "_"].contains($0))
            }
    }
}
