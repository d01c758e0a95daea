"""Writes the .dist-info of a pyproject.toml, as pip and importlib.metadata look for it.

metadata.py PYPROJECT DIR"""

import os
import sys
import tomllib

with open(sys.argv[1], 'rb') as file:
    project = tomllib.load(file)['project']
folder = os.path.join(
    sys.argv[2], f'{project["name"].replace("-", "_")}-{project["version"]}.dist-info'
)
os.makedirs(folder)
with open(os.path.join(folder, 'METADATA'), 'w') as file:
    file.write('Metadata-Version: 2.1\n')
    file.write(f'Name: {project["name"]}\nVersion: {project["version"]}\n')
    file.write(f'Summary: {project["description"]}\nLicense: {project["license"]}\n')
    file.write(f'Requires-Python: {project["requires-python"]}\n')
with open(os.path.join(folder, 'INSTALLER'), 'w') as file:
    file.write('debian\n')
with open(os.path.join(folder, 'entry_points.txt'), 'w') as file:
    for group, names in project.get('entry-points', {}).items():  # not scripts: the package lmc
        file.write(f'[{group}]\n' + ''.join(f'{n} = {value}\n' for n, value in names.items()))
