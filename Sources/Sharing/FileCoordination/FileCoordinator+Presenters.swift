import GroupContainers

extension FileCoordinator {
    /// Registers a presenter for the item at its ``FilePresenter/presentedItemURL``, until
    /// ``removeFilePresenter(_:in:)``.
    ///
    /// Returns once every access that would have asked the presenter has ended. Without an agent that serves the group,
    /// or if the agent doesn't answer within two seconds, only this process asks the presenter until an agent does: see
    /// ``registration(of:in:)``. Adding a presenter twice registers it once.
    ///
    /// Throws ``FileCoordinationError``, with the code ``FileCoordinationError/Code-swift.enum/agent`` if the agent
    /// refuses, and `CancellationError`. The presenter is then not registered.
    ///
    /// - Important: A presenter stays registered, and in memory, until ``removeFilePresenter(_:in:)``.
    public static func addFilePresenter(
        _ presenter: any FilePresenter, in container: GroupContainer
    ) async throws {
        let presenters = RegisteredPresenters.shared(in: container)
        let registered = try await presenters.add(presenter, in: container)
        guard case .refused(let reason) = registered.registration else { return }
        presenters.remove(presenter)
        throw FileCoordinationError(.agent, reason, remedy: "see the agent's log, or groupstore doctor")
    }

    /// Returns which processes ask the presenter, or nil if it isn't registered.
    public static func registration(
        of presenter: any FilePresenter, in container: GroupContainer
    ) -> FilePresenterRegistration? {
        RegisteredPresenters.shared(in: container).registration(of: presenter)?.registration
    }

    /// Ends the presenter's registration. A method of the presenter that is running continues; no further one is
    /// called.
    public static func removeFilePresenter(_ presenter: any FilePresenter, in container: GroupContainer) {
        RegisteredPresenters.shared(in: container).remove(presenter)
    }
}
