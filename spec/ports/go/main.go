// lmc0 restores LMC files of conformance level 0 ("Direct"). SPDX-License-Identifier: MIT

package main

import (
	"bufio"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"sort"
	"syscall"
)

// Restore reads an LMC file and leaves at out what it holds: a file, or a directory if it has paths.
func Restore(in io.Reader, out string, limit uint64) (err error) {
	if _, err := os.Lstat(out); err == nil {
		return fmt.Errorf("%s exists", out)
	}
	work, err := os.MkdirTemp(filepath.Dir(out), ".lmc0-")
	if err != nil {
		return err
	}
	d := &decoder{in: bufio.NewReaderSize(in, 1<<16), paths: map[string]bool{}, limit: limit}
	defer func() {
		if d.out != nil {
			d.out.Close()
		}
		os.RemoveAll(work)
		switch e := recover().(type) {
		case nil:
		case runtime.Error:
			panic(e)
		case error:
			err = e
		}
	}()
	root := filepath.Join(work, "root")
	d.create = func(f *file) io.WriteCloser { return create(filepath.Join(root, f.path), f.directory()) }
	d.decode()
	check(os.Rename(root, out))
	if d.links && d.files[0].path != "" {
		fmt.Fprintln(os.Stderr, "note: it has links (lmc.links), which are not restored") // R10.2-8
	}
	sort.Slice(d.files, func(i, j int) bool { return d.files[i].path > d.files[j].path }) // directories after what is in them
	for _, f := range d.files {
		path := filepath.Join(out, f.path)
		if f.hasTime() {
			time := syscall.Timespec{Sec: f.seconds, Nsec: f.nano}
			_ = syscall.UtimesNano(path, []syscall.Timespec{time, time}) // the system may not have this time
		}
		if f.hasMode() {
			check(os.Chmod(path, os.FileMode(f.mode&0o777)))
		}
	}
	return nil
}

func create(path string, directory bool) io.WriteCloser {
	if directory {
		check(os.MkdirAll(path, 0o777))
		return nil
	}
	check(os.MkdirAll(filepath.Dir(path), 0o777))
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	check(err)
	return f
}

func main() {
	limit := flag.Uint64("limit", maxSize, "refuse a snapshot of more than this many bytes")
	flag.Func("base", "is taken and ignored: no file of level 0 has a base (R9.4-6)", func(string) error { return nil })
	flag.Usage = func() {
		fmt.Fprintln(os.Stderr, "Usage: lmc0 [options] IN.lmc OUT\nRestores an LMC file of conformance level 0. OUT must not exist.")
		flag.PrintDefaults()
	}
	flag.Parse()
	if flag.NArg() != 2 || *limit > maxSize {
		flag.Usage()
		os.Exit(2)
	}
	in, err := os.Open(flag.Arg(0))
	if err == nil {
		err = Restore(in, flag.Arg(1), *limit)
	}
	var failure *Failure
	switch {
	case err == nil:
		fmt.Println("OK: the snapshot is restored, and all of it was checked.")
	case errors.As(err, &failure):
		fmt.Fprintln(os.Stderr, failure)
		code, ok := map[string]int{"VERSION": 1, "UNSUPPORTED": 1, "LIMIT": 1, "BASE_MISSING": 4, "BASE_WRONG": 4}[failure.Status]
		if !ok {
			code = 3
		}
		os.Exit(code)
	default:
		fmt.Fprintln(os.Stderr, "lmc0:", err)
		os.Exit(2)
	}
}
