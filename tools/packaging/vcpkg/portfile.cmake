vcpkg_from_github(
    OUT_SOURCE_PATH SOURCE_PATH
    REPO REPOSITORY
    REF "v${VERSION}"
    SHA512 0 # of the release's archive
    HEAD_REF main
)
vcpkg_check_linkage(ONLY_STATIC_LIBRARY)
vcpkg_check_features(OUT_FEATURE_OPTIONS FEATURE_OPTIONS
    FEATURES
        command LMC_BUILD_COMMAND
        hdf5-filter LMC_BUILD_HDF5_FILTER
)
vcpkg_cmake_configure(
    SOURCE_PATH "${SOURCE_PATH}"
    OPTIONS -DLMC_BUILD_COMPILED=ON -DLMC_INSTALL=ON ${FEATURE_OPTIONS}
)
vcpkg_cmake_install()
vcpkg_cmake_config_fixup(CONFIG_PATH lib/cmake/lmc)
vcpkg_fixup_pkgconfig()
if("command" IN_LIST FEATURES)
    vcpkg_copy_tools(TOOL_NAMES lmc AUTO_CLEAN)
endif()
file(REMOVE_RECURSE "${CURRENT_PACKAGES_DIR}/debug/include" "${CURRENT_PACKAGES_DIR}/debug/share")
vcpkg_install_copyright(FILE_LIST "${SOURCE_PATH}/LICENSE")
