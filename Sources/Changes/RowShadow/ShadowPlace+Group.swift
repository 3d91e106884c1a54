import SystemPackage

extension ShadowPlace {
    /// The directory of all shadows of a group's stores, in the group's `.groupstore`.
    package static let groupName: FilePath.Component = "rows"

    /// The place of the agent's shadow of a group's store.
    ///
    /// - Parameters:
    ///   - name: The store's file name.
    ///   - directory: The group's directory.
    package init(of name: FilePath.Component, inGroup directory: FilePath) {
        path = directory.appending(".groupstore").appending(Self.groupName).appending(name)
    }
}
