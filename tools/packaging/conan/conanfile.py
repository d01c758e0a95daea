"""The recipe for Conan 2: lmc::lmc, the header, and lmc::compiled, a static library.

CMake has the same."""

import os

from conan import ConanFile
from conan.tools.cmake import CMake, CMakeToolchain, cmake_layout
from conan.tools.files import copy, load, rmdir

required_conan_version = '>=2.0'


class LMC(ConanFile):
    name = 'lmc'
    description = 'Lossless codec for the tensors and checkpoints of large language models'
    license = 'MIT'
    topics = ('compression', 'safetensors', 'checkpoint', 'header-only')
    package_type = 'static-library'
    settings = 'os', 'arch', 'compiler', 'build_type'
    options = {'fPIC': [True, False]}
    default_options = {'fPIC': True}
    implements = ['auto_shared_fpic']
    languages = 'C'

    def _top(self):
        return os.path.join(self.recipe_folder, '..', '..', '..')

    def set_version(self):
        for line in load(self, os.path.join(self._top(), 'lmc.h')).splitlines():
            if line.startswith('#define LMC_VERSION "'):
                self.version = line.split('"')[1]

    def export_sources(self):
        headers = ('lmc.h', 'include/*.h')
        makers = ('src/*', 'tools/amalgamate.py')  # of headers that are not in git
        for name in (*headers, *makers, 'CMakeLists.txt', 'LICENSE', 'tools/packaging/lmc.pc.in'):
            copy(self, name, self._top(), self.export_sources_folder)

    def layout(self):
        cmake_layout(self)

    def generate(self):
        toolchain = CMakeToolchain(self)
        toolchain.cache_variables['LMC_BUILD_COMMAND'] = False
        toolchain.generate()

    def build(self):
        cmake = CMake(self)
        cmake.configure()
        cmake.build()

    def package(self):
        copy(self, 'LICENSE', self.source_folder, os.path.join(self.package_folder, 'licenses'))
        CMake(self).install()
        for name in ('cmake', 'pkgconfig'):  # Conan makes its own of package_info
            rmdir(self, os.path.join(self.package_folder, 'lib', name))

    def package_info(self):
        header = self.cpp_info.components['lmc']
        header.set_property('cmake_target_name', 'lmc::lmc')
        header.bindirs = header.libdirs = []
        compiled = self.cpp_info.components['compiled']
        compiled.set_property('cmake_target_name', 'lmc::compiled')
        compiled.libs = ['lmc']
        compiled.requires = ['lmc']
        if self.settings.os != 'Windows':
            compiled.defines = ['LMC_PTHREADS', 'LMC_POSIX']
            compiled.system_libs = ['pthread']
