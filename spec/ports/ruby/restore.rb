#!/usr/bin/env ruby
# frozen_string_literal: true

# restore.rb IN.lmc OUT: restores an LMC file that has no bit of Incompatible (decoder.rb), with modes and times. Exit codes: 0; 1 the program
# is too old or too small, usage, the system; 3 bad data. SPDX-License-Identifier: MIT
require 'fileutils'
require_relative 'decoder'

def restore(input, out)
  raise "#{out} exists already" if File.exist?(out)

  decoder = Decoder.new(File.binread(input))
  files = decoder.decode
  root = File.join(File.dirname(out), ".restore-#{Process.pid}")
  Dir.mkdir(root, 0o700)
  files.sort_by(&:path).reverse_each do |file| # directories after what is in them
    path = File.join(root, file.path.empty? ? 'file' : file.path)
    FileUtils.mkdir_p(file.directory? ? path : File.dirname(path))
    File.binwrite(path, file.data, mode: 'wbx') unless file.directory?
    File.utime(Time.at(*file.time, :nsec), Time.at(*file.time, :nsec), path) if file.time
    File.chmod(file.mode & 0o777, path) if file.mode
  end
  File.rename(files[0].path.empty? ? File.join(root, 'file') : root, out)
  warn 'note: it has links (lmc.links), which are not restored' if decoder.metadata['lmc.links'] # L-10
ensure
  FileUtils.rm_rf(root) if root
end

begin
  ARGV.size == 2 ? restore(*ARGV) : abort('usage: restore.rb IN.lmc OUT')
rescue LmcError => e
  warn "restore: #{e.message}"
  exit e.message.start_with?('VERSION', 'UNSUPPORTED', 'LIMIT') ? 1 : 3
rescue SystemCallError, RuntimeError => e
  abort "restore: #{e.message}"
end
