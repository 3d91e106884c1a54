import GroupContainers
import LinuxSystem
import StoreRelocation
import SystemPackage

/// What a move, or its undo, would do, as `--dry-run` prints it.
package struct AppPreview: Sendable {
    package let from: FilePath
    package let to: FilePath
    package let outcome: Outcome
    package let method: AppMoveSummary.Method
    package let contents: AppContents
    package let holders: [FileHolder]
    /// What would be stopped, and started again, in this order and back.
    package let stopped: [ManagedProgram]
    /// The columns in which paths would be changed.
    package let rewritten: [RewrittenColumn]
    /// What a copy leaves out or keeps as it is, in sentences.
    package let notes: [String]

    package enum Outcome: String, Sendable {
        case wouldMove = "would_move"
        case alreadyMoved = "already_moved"
        case wouldUndo = "would_undo"
        case nothingToUndo = "nothing_to_do"
    }

    init(_ relocation: AppRelocation) throws {
        let request = relocation.request
        let places = try AppPlaces(source: request.source, destination: request.destination)
        switch AppPlan(try places.facts(isUndo: false)) {
        case .refuse(let refusal): throw try relocation.failure(refusal, places, isUndo: false)
        case .alreadyMoved: self.init(.alreadyMoved, places)
        case .move(let root, _):
            // A run reads it first. One that can't be read stops it.
            _ = try GroupContainer(directory: places.destinationParent).appJournal()
            try self.init(places, root, relocation)
        }
    }

    /// Previews the way back of a move.
    init(undoing relocation: AppRelocation) throws {
        let request = relocation.request
        let forward = try AppPlaces(source: request.source, destination: request.destination)
        let back = try AppPlaces(source: forward.destination, destination: forward.source)
        let container = GroupContainer(directory: forward.destinationParent)
        if let journal = try container.appJournal() {
            throw RelocationFailure.app(
                .unusablePlace, "interrupted",
                "a move of \(PrintablePath(journal.move.source.path)) to \(PrintablePath(journal.move.destination.path)) was "
                    + "interrupted, and is ended before anything is undone",
                "end it: groupstore recover \(container.directory.path.shellWord)")
        }
        guard let receipt = try relocation.receipt(container, forward) else {
            self.init(.nothingToUndo, back)
            return
        }
        switch AppPlan(try back.facts(isUndo: true)) {
        case .alreadyMoved: self.init(.nothingToUndo, back)
        case .refuse(let refusal): throw try relocation.failure(refusal, back, isUndo: true)
        case .move(let root, _):
            try self.init(back, root, relocation, undoing: container.appCells(receipt.move.id) != nil)
        }
    }

    private init(_ outcome: Outcome, _ places: AppPlaces) {
        self.outcome = outcome
        (from, to) = (places.source, places.destination)
        (method, contents, holders, stopped, rewritten, notes) = (.rename, AppContents(), [], [], [], [])
    }

    /// - Parameter undoing: Nil for a move. For an undo, true if that gives back paths that the move has changed.
    private init(
        _ places: AppPlaces, _ root: FileIdentity, _ relocation: AppRelocation, undoing: Bool? = nil
    ) throws {
        let request = relocation.request
        outcome = undoing == nil ? .wouldMove : .wouldUndo
        (from, to) = (places.source, places.destination)
        let directory = try places.sourceParent.directory(places.sourceName)
        let isNear = try places.destinationParent.status().identity.device == root.device
        method = isNear && !(undoing ?? !request.rewrites.isEmpty) ? .rename : .copy
        let recipe = undoing == nil ? request.recipe : nil
        let survey = try AppSurvey(directory, .files, leaving: method == .copy ? recipe?.leave ?? [] : [])
        if undoing == nil { try survey.checkLogs() }
        try recipe?.check(survey, of: from)
        try recipe?.checkTables(in: directory, at: from)
        try places.checkWritable()
        try places.checkRenamable(asCopy: method == .copy)
        if undoing == nil { try places.checkAccess(directory, survey, request) }
        if method == .copy {
            try survey.checkCopy()
            // The records with their lock and journal, and the staging directory with its manifest.
            try AppTransfer.checkSpace(survey, places, own: 5)
        }
        let rewriting =
            try undoing != nil || request.rewrites.isEmpty
            ? nil : AppRewriting.preview(request.rewrites, in: directory, survey.stores)
        rewritten = rewriting?.columns ?? []
        contents = survey.contents
        (holders, stopped) = try relocation.holders(places, root)
        notes =
            (recipe?.notes(survey, isCopy: method == .copy) ?? []) + (rewriting?.notes ?? [])
            + (undoing == true ? ["the paths that the move has changed in the stores are changed back"] : [])
            + places.notes(survey.contents)
            + (method == .copy ? AppTransfer.notes(survey.contents) : [])
    }
}
