import ArgumentParser
import CommandSupport
import Glibc

extension CompletionKind {
    /// Stores as `GROUP_ID/NAME`, which the program `groupstore` knows, if it is installed; and files.
    static var stores: CompletionKind {
        NameCompletion.kind(
            bash: "groupstore complete \(NameCompletion.storeWords); compgen -f -- \"${cur}\"",
            fish: "command groupstore complete stores 2>/dev/null", names: { _ in known("stores") })
    }

    /// Identifiers of groups, and directories.
    static var containers: CompletionKind {
        NameCompletion.kind(
            bash: "groupstore complete groups; compgen -d -- \"${cur}\"",
            fish: "command groupstore complete groups 2>/dev/null; __fish_complete_directories (commandline -ct)",
            names: { _ in known("groups") })
    }

    private static func known(_ kind: String) -> [String] {
        guard let pipe = popen("groupstore complete \(kind) 2>/dev/null", "r") else { return [] }
        defer { pclose(pipe) }
        var names: [String] = []
        var buffer: UnsafeMutablePointer<CChar>?
        var capacity = 0
        defer { free(buffer) }
        while getline(&buffer, &capacity, pipe) > 0, let line = buffer {
            names.append(String(String(cString: line).prefix { $0 != "\n" }))
        }
        return names
    }
}
