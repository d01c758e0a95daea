#!/usr/bin/env ruby
# frozen_string_literal: true

# All of spec/vectors through level0.rb: contents and statuses; what is above level 0 must be UNSUPPORTED. SPDX-License-Identifier: MIT
require 'json'
require_relative 'level0'

VECTORS = File.expand_path('../../vectors', __dir__)
manifest = JSON.parse(File.read(File.join(VECTORS, 'manifest.json')))
failed = passed = 0
%w[valid invalid].each do |kind|
  manifest[kind].each do |entry|
    found = []
    begin
      files = Decoder.new(File.binread(File.join(VECTORS, kind, "#{entry['name']}.lmc"))).decode
      found = files.map { |file| Digest::SHA256.hexdigest(file.data) }
      status = 'OK'
    rescue LmcError => e
      status = e.message[/\w+/]
    end
    wanted = kind == 'valid' && entry['level'].zero? ? ['OK'] : entry['status'].to_a
    wanted += %w[UNSUPPORTED BASE_MISSING] if entry['level'].positive?
    same = status != 'OK' || found == entry['files'].map { |file| file['sha256'] }
    wanted.include?(status) && same ? passed += 1 : failed += 1
    puts "FAILED #{kind}/#{entry['name']}: #{status}, not #{wanted.join(' or ')}#{' as expected' unless same}" unless wanted.include?(status) && same
  end
end
puts "#{passed} passed, #{failed} failed"
exit failed.zero?
