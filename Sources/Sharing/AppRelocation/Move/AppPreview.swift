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
    /// The columns in which paths would be changed.
    package let rewritten: [RewrittenColumn]
    /// What a copy leaves out or keeps as it is, in sentences.
    package let notes: [String]

    init(_ relocation: AppRelocation) throws {
        let places = try AppPlaces(source: relocation.request.source, destination: relocation.request.destination)
        (from, to) = (places.source, places.destination)
        switch AppPlan(try places.facts(isUndo: false)) {
        case .refuse(let refusal): throw refusal.failure(from, to)
        case .alreadyMoved:
            (isMoved, method, contents, holders, notes) = (true, .rename, AppContents(), [], [])
            rewritten = []
        case .move(let root, _):
            let directory = try places.sourceParent.directory(places.sourceName)
            let survey = try AppSurvey(directory, .files)
            let rewrites = relocation.request.rewrites
            let recipe = relocation.request.recipe
            try recipe?.check(survey, of: from)
            isMoved = false
            try places.checkWritable()
            try places.checkAccess(directory, survey, units: relocation.request.unitRoot)
            let isNear = try places.destinationParent.status().identity.device == root.device
            method = isNear && rewrites.isEmpty ? .rename : .copy
            if method == .copy {
                try survey.checkShared()
                // The records with their lock and journal, and the staging directory with its manifest.
                try AppTransfer.checkSpace(survey, places, own: 5)
            }
            let rewriting = try rewrites.isEmpty ? nil : AppRewriting.preview(rewrites, in: directory, survey.stores)
            rewritten = rewriting?.columns ?? []
            contents = survey.contents
            holders = AppHolders.find(device: root.device, inodes: survey.inodes, under: from)
            notes =
                (recipe?.notes(survey, isCopy: method == .copy) ?? []) + (rewriting?.notes ?? [])
                + places.notes(survey.contents)
                + (method == .copy ? AppTransfer.notes(survey.contents) : [])
        }
    }
}
