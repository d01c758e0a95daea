#!/usr/bin/env ruby
# frozen_string_literal: true

# Answers for spec/check_vectors.py --has zeros,matrix,codes --answers 'ruby answers.rb': a line with an LMC file gets a line of JSON. SPDX-License-Identifier: MIT
require 'json'
require_relative 'decoder'

def hex(bytes) = bytes&.unpack1('H*')

def answer_of_file(file)
  tensors = file.tensors.map do |t|
    { name: hex(t.name), dtype: hex(t.dtype), shape: t.shape, offset: t.offset, size: t.size, loss: t.loss, fingerprint: hex(t.fingerprint) }
  end
  { path: hex(file.path), kind: file.directory? ? 'directory' : 'regular', size: file.data.size, sha256: Digest::SHA256.hexdigest(file.data),
    mode: file.mode, mtime: file.time, fingerprint: hex(file.fingerprint), tensors: tensors }
end

def answer(path)
  decoder = Decoder.new(File.binread(path))
  files = decoder.decode.map { |file| answer_of_file(file) }
  metadata = decoder.metadata.map { |key, value| [hex(key), hex(value)] }
  { status: 'OK', fingerprint: hex(decoder.fingerprint), base_fingerprint: nil, metadata: metadata, files: files }
rescue LmcError => e
  { status: e.message[/\w+/], what: e.message }
end

$stdout.sync = true
$stdin.each_line(chomp: true) { |line| puts JSON.generate(answer(line.split("\t")[0])) }
