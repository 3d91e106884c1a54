import AgentProtocol
import ArgumentParser
import Glibc
import GroupContainer
import GroupStoreAgent
import LinuxSystem
import StoreRelocation
import SystemPackage

struct RelocateCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "relocate",
        abstract: "Move a store, with all that belongs to it, into a group container.",
        discussion: """
            Nothing is lost, whatever happens: where it is not certain that the move is right, nothing is changed and \
            the reason is printed. Run it again after a crash: it finishes or undoes what was begun.
            """)

    @Argument(help: "The legacy store's database file.", completion: .file())
    var sourceStore: String

    @Argument(help: "The group container's directory.", completion: .directory)
    var groupDir: String

    @Option(help: "The store's file name in the group container; the support folder follows.")
    var name: String?

    @Flag(help: "Print what would be done, and change nothing.")
    var dryRun = false

    @Option(help: "When both places hold rows of their own: \(list(RelocationRequest.ConflictPolicy.self)).")
    var onConflict: RelocationRequest.ConflictPolicy = .refuse

    @Option(help: "What becomes of the old place: \(list(Transfer.Retirement.self)).")
    var retire: Transfer.Retirement = .delete

    @Option(help: "Seconds to wait for programs that have the store open.")
    var deadline: Double = 30

    @Flag(help: "Move a file that can't be read, an encrypted database for instance, byte by byte.")
    var opaque = false

    @Option(
        help: "A model: a store of an older version of it is migrated on the way, or where it is.", completion: .file())
    var model: String?

    @OptionGroup var modelOptions: MigrationModelOptions

    @Flag(help: "Take the store's last relocation back, while nobody has written to it since.")
    var undo = false

    @Flag(help: "Go on where it can't be proved that nobody has the store open.")
    var assumeClosed = false

    @OptionGroup var outputOptions: OutputOptions

    func validate() throws {
        guard !undo || !dryRun else { throw ValidationError("--undo has no --dry-run") }
        guard deadline >= 0, deadline <= 86_400 else { throw ValidationError("--deadline is 0 to 86400 seconds") }
    }

    func run() throws {
        let output = Output(outputOptions)
        let progress = RelocationProgress(output)
        let started = ContinuousClock.now
        do {
            var request = try request()
            try reporting(output) {
                try storeFailures { request.transform = try model.map(modelOptions.transform(toModel:)) }
            }
            // An agent has a model of its own, where its configuration names one.
            let agent =
                model == nil ? AgentRelocation(request, dryRun: dryRun, environment: ProcessVariables.all) : nil
            guard agent == nil || !undo else { throw Self.undoBesideAgent }
            if let summary = agent?.run(progress) { return try progress.finish(summary) }
            FileLease.ignoreBreakSignal()
            let engine = RelocationEngine(request, report: { progress.report($0) })
            let summary = undo ? try engine.undo() : dryRun ? try engine.dryRun() : try engine.run()
            progress.finish(summary, seconds: started.duration(to: .now).seconds, dryRun: dryRun)
        } catch let error as RelocationFailure {
            let source = ArgumentBytes.path(sourceStore).absolute(in: FilePath(workingDirectory()))
            progress.fail(error, source: source, seconds: started.duration(to: .now).seconds)
            throw ExitCode(error.exitCode)
        }
    }

    /// Its configuration says that the store belongs into the group.
    private static let undoBesideAgent = RelocationFailure(
        .busy, code: "agent_serves", "an agent serves this group, and would relocate the store again at once",
        remedy: "stop the agent, or take the legacy store out of its configuration, then run this again")

    private func request() throws(RelocationFailure) -> RelocationRequest {
        let working = FilePath(workingDirectory())
        var request = RelocationRequest(
            source: ArgumentBytes.path(sourceStore).absolute(in: working),
            group: ArgumentBytes.path(groupDir).absolute(in: working))
        if let name {
            guard let component = FilePath.Component(bytes: ArgumentBytes.path(name).bytes) else {
                throw .badName(FilePath(name))
            }
            request.name = component
        }
        request.onConflict = onConflict
        request.retirement = retire
        request.deadline = .milliseconds(Int64(deadline * 1000))
        request.opaque = opaque
        request.assumeClosed = assumeClosed
        return request
    }
}

private func list<Value: CaseIterable & RawRepresentable>(_ type: Value.Type) -> String where Value.RawValue == String {
    type.allCases.map(\.rawValue).joined(separator: ", ")
}

extension RelocationRequest.ConflictPolicy: ExpressibleByArgument {}
extension Transfer.Retirement: ExpressibleByArgument {}
