import AgentProtocol
import AppRelocation
import ArgumentParser
import CommandSupport
import GroupContainers
import GroupStoreAgent
import LinuxSystem
import StoreRelocation
import SystemPackage

struct MoveAppCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "move-app",
        abstract: "Move a program's whole directory: all its stores and other files.",
        discussion: """
            A symbolic link to the new place stays at the old one, so that the program starts as before. On one file \
            system the directory is renamed, whatever its size. To another one it is copied: all SQLite stores in it are \
            locked first, each file is verified, and the old ones are removed once they are proved to be at the new \
            place. End the program first, or have it stopped and started again with --stop-holders.

            After a crash, run the command again: it finishes the move, or goes on with the copy.

            Example:
              groupstore move-app ~/.newsboat /srv/shared/newsboat
            """)

    @Argument(
        help: "The directory to move. flatpak:APP/PATH and snap:NAME/common/PATH are short for a packaged app's.",
        completion: .directory)
    var source: String

    @Argument(
        help: """
            The new path, an existing directory to move it into, or a group's identifier, alone or followed by /NAME. \
            --undo needs none.
            """,
        completion: .containers)
    var destination: String?

    @Flag(help: "Print what would be done, and change nothing.")
    var dryRun = false

    @Flag(help: "Move the directory back, and remove the link at its old place.")
    var undo = false

    @Option(
        name: .customLong("rewrite"),
        help: ArgumentHelp(
            "Change this path, and those below it, in the stores' text, URLs and JSON. May be repeated.",
            valueName: "old=new"))
    var rewrites: [String] = []

    @Option(
        help: ArgumentHelp(
            "What is known of the program: a file, or a name that 'groupstore app recipes' lists.",
            valueName: "recipe"),
        completion: .file(extensions: ["yaml"]))
    var recipe: String?

    @Option(
        help: ArgumentHelp(
            "The longest wait for programs that have a file open (default: 30s).", valueName: "time"),
        transform: DurationArgument.init)
    var deadline = DurationArgument(seconds: 30)

    @Flag(
        help: """
            Stop the systemd units, Flatpak apps and containers that have a file open, and start them again afterwards.
            """)
    var stopHolders = false

    @Flag(help: "Continue even if it can't be proved that no program has a store open.")
    var assumeClosed = false

    @OptionGroup var outputOptions: OutputOptions

    func validate() throws {
        guard !undo || rewrites.isEmpty else {
            throw ValidationError("--undo takes back what --rewrite changed: leave --rewrite out")
        }
        guard !undo || recipe == nil else { throw ValidationError("--undo needs no recipe: leave --recipe out") }
        let old = try rewrites.map { try Self.rewrite($0).old }
        for (index, path) in old.enumerated() where old[..<index].contains(path) {
            throw ValidationError("--rewrite names \(PrintablePath(path.path)) twice: leave one of them out")
        }
        guard undo || destination != nil else { throw ValidationError("Missing expected argument '<destination>'") }
        try deadline.validate("--deadline", in: 0...86_400)
    }

    func run() throws {
        let output = Output(outputOptions)
        let printer = AppMovePrinter(output)
        let started = ContinuousClock.now
        Interruption.installHandlers(announcing: true)
        FileLease.ignoreBreakSignal()
        var from = ArgumentBytes.path(source)
        do {
            guard let request = try request() else {
                // Only --undo needs no destination.
                let path = try AppPlaceArguments.source(source)
                if !dryRun { AppRelocation.removeUnfinishedNotes(beside: path) }
                let summary = AppMoveSummary(outcome: .nothingToUndo, from: path, to: path)
                return try reporting(output) { printer.finish(summary, seconds: started.duration(to: .now).seconds) }
            }
            from = request.source
            let engine = AppRelocation(
                request, isCancelled: { Interruption.isRequested }, report: { printer.report($0) })
            if dryRun {
                let preview = try undo ? engine.dryRunOfUndo() : engine.dryRun()
                let stopped = try AppRelocation.stopped(in: request.destination.removingLastComponent())
                return try reporting(output) {
                    if let stopped { printer.show(stopped) }
                    printer.show(preview)
                    if preview.outcome == .wouldMove, preview.rewritten.isEmpty { reportUselessRewrites(printer) }
                }
            }
            let summary = undo ? try engine.undo() : try engine.run()
            try reporting(output, changing: true) {
                if summary.outcome == .moved, summary.rewritten.isEmpty { reportUselessRewrites(printer) }
                printer.finish(summary, seconds: started.duration(to: .now).seconds)
            }
            // The directory is back, but a store may hold paths that lead nowhere now.
            if !summary.left.allSatisfy(\.isIntended) { throw ExitCode(65) }
        } catch let error where error is RelocationFailure || error is SystemError {
            let failure = RelocationFailure(error, RelocationRequest(source: from, group: from)).markedIfInterrupted
            printer.fail(failure, source: from, seconds: started.duration(to: .now).seconds)
            throw ExitCode(failure.exitCode)
        }
    }

    private func reportUselessRewrites(_ printer: AppMovePrinter) {
        guard !rewrites.isEmpty else { return }
        printer.report(.note("--rewrite: no store has a path to change"))
    }

    /// Splits at the first `=` that is followed by a slash: a path may contain others.
    private static func rewrite(_ text: String) throws -> PathRewrite {
        let bytes = ArgumentBytes.path(text).bytes
        let place = bytes.indices.dropLast().first { bytes[$0...].starts(with: "=/".utf8) }
        guard let place, let old = FilePath(bytes: bytes[..<place]), let new = FilePath(bytes: bytes[(place + 1)...]),
            let rewrite = PathRewrite(old: old, new: new)
        else { throw ValidationError("--rewrite takes two absolute paths: --rewrite /old/place=/new/place") }
        return rewrite
    }

    /// Returns nil if an undo names a directory that no move has brought there or taken from there.
    private func request() throws -> AppMoveRequest? {
        let source = try AppPlaceArguments.source(source)
        let places: (source: FilePath, destination: FilePath)
        if let destination {
            places = (source, try AppPlaceArguments.destination(destination, of: source, isUndo: undo))
        } else {
            let recorded = try AppRelocation.recorded(source) {
                Configuration.localGroups(environment: ProcessVariables.all).map(\.directory)
            }
            guard let recorded else { return nil }
            places = recorded
        }
        var request = AppMoveRequest(source: places.source, destination: places.destination)
        request.deadline = deadline.duration
        request.assumeClosed = assumeClosed
        request.stopsHolders = stopHolders
        request.rewrites = try rewrites.map(Self.rewrite)
        if let recipe {
            let file = AppRecipe.file(ArgumentBytes.path(recipe), environment: ProcessVariables.all)
            do throws(AppRecipeError) {
                request.recipe = try AppRecipe(reading: file)
            } catch {
                throw RelocationFailure(.badData, code: error.errorCode, error.message, remedy: error.remedy)
            }
            if request.recipe?.rewrite == true { request.rewriteOwnPath() }
        }
        return request
    }
}
