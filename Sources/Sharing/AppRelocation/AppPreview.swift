import GroupContainers
import LinuxSystem
import StoreRelocation
import SystemPackage

/// What a move would do, as `--dry-run` prints it.
package struct AppPreview: Sendable {
    package let from: FilePath
    package let to: FilePath
    package let isMoved: Bool
    package let method: AppMoveSummary.Method
    package let contents: AppContents
    package let holders: [FileHolder]
    /// What a copy leaves out or keeps as it is, in sentences.
    package let notes: [String]

    init(_ relocation: AppRelocation) throws {
        let places = try AppPlaces(source: relocation.request.source, destination: relocation.request.destination)
        (from, to) = (places.source, places.destination)
        switch AppPlan(try places.facts(isUndo: false)) {
        case .refuse(let refusal): throw refusal.failure(from, to)
        case .alreadyMoved:
            (isMoved, method, contents, holders, notes) = (true, .rename, AppContents(), [], [])
        case .move(let root, _):
            let survey = try AppSurvey(places.sourceParent.directory(places.sourceName), .files)
            isMoved = false
            method = try places.destinationParent.status().identity.device == root.device ? .rename : .copy
            contents = survey.contents
            holders = AppHolders.find(device: root.device, inodes: survey.inodes, under: from)
            notes = method == .copy ? AppTransfer.notes(survey.contents) : []
        }
    }
}
