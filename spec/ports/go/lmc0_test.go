// SPDX-License-Identifier: MIT

package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand"
	"os"
	"path/filepath"
	"testing"
)

const vectors = "../../vectors/"

type vector struct {
	Name   string
	Level  int
	Status []string
	Files  []struct {
		Path    string
		PathHex string `json:"path_hex"` // instead of Path, where that is not UTF-8
		Kind    string
		Sha256  string
	}
}

func manifest(t *testing.T) (m struct{ Valid, Invalid []vector }) {
	text, err := os.ReadFile(vectors + "manifest.json")
	if err == nil {
		err = json.Unmarshal(text, &m)
	}
	if err != nil || len(m.Valid) == 0 || len(m.Invalid) == 0 {
		t.Fatal("no vectors: ", err)
	}
	return
}

// restore gives the status of a file, or OK; what it holds is at out then.
func restore(t *testing.T, data []byte, out string) string {
	err := Restore(bytes.NewReader(data), out, 1<<32)
	var failure *Failure
	if err == nil {
		return "OK"
	}
	if !errors.As(err, &failure) {
		t.Fatal(err)
	}
	if left, _ := os.ReadDir(filepath.Dir(out)); len(left) != 0 {
		t.Error("something is left of a file that was refused")
	}
	return failure.Status
}

func read(t *testing.T, path string) []byte {
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestValid(t *testing.T) {
	restored := 0
	for _, v := range manifest(t).Valid {
		out := filepath.Join(t.TempDir(), "out")
		status := restore(t, read(t, vectors+"valid/"+v.Name+".lmc"), out)
		if v.Level > 0 {
			if status != "UNSUPPORTED" && status != "BASE_MISSING" {
				t.Errorf("%s: %s", v.Name, status)
			}
			continue
		}
		if status != "OK" {
			t.Errorf("%s: %s", v.Name, status)
			continue
		}
		restored++
		for _, f := range v.Files {
			name, err := hex.DecodeString(f.PathHex)
			if err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(out, f.Path+string(name))
			if f.Kind != "regular" {
				if info, err := os.Stat(path); err != nil || !info.IsDir() {
					t.Errorf("%s: %q is no directory", v.Name, f.Path)
				}
			} else if fmt.Sprintf("%x", sha256.Sum256(read(t, path))) != f.Sha256 {
				t.Errorf("%s: %q has other bytes", v.Name, f.Path)
			}
		}
	}
	t.Logf("%d snapshots of level 0", restored)
}

func TestInvalid(t *testing.T) {
	for _, v := range manifest(t).Invalid {
		status := restore(t, read(t, vectors+"invalid/"+v.Name+".lmc"), filepath.Join(t.TempDir(), "out"))
		good := v.Level > 0 && (status == "UNSUPPORTED" || status == "BASE_MISSING")
		for _, s := range v.Status {
			good = good || s == status
		}
		if !good {
			t.Errorf("%s: %s, not one of %v", v.Name, status, v.Status)
		}
	}
}

// TestDamaged changes bytes anywhere, or in the first section with its CRC repaired: nothing may crash.
func TestDamaged(t *testing.T) {
	random := rand.New(rand.NewSource(1))
	out := filepath.Join(t.TempDir(), "out")
	for _, v := range manifest(t).Valid {
		data := read(t, vectors+"valid/"+v.Name+".lmc")
		if v.Level > 0 || len(data) > 1<<16 {
			continue
		}
		body := data[104 : 104+le.Uint64(data[88:])]
		for i := 0; i < 10; i++ {
			damaged := append([]byte(nil), data...)
			if i%2 == 0 {
				damaged[random.Intn(len(data))] ^= 1 << random.Intn(8)
			} else {
				copied := damaged[104 : 104+len(body)]
				copied[random.Intn(len(body))] = byte(random.Intn(256)) >> random.Intn(8)
				le.PutUint32(damaged[100:], crc(copied))
			}
			if err := Restore(bytes.NewReader(damaged), out, 1<<30); err == nil {
				os.RemoveAll(out)
			}
		}
	}
}

// TestVarint: the limits of varints, in and out.
func TestVarint(t *testing.T) {
	for text, value := range map[string]uint64{
		"\x00": 0, "\x7f": 127, "\x80\x01": 128, "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01": 1<<64 - 1,
	} {
		if v := (&cursor{[]byte(text)}).varint(); v != value {
			t.Errorf("%x is %d, not %d", text, v, value)
		}
	}
	nine := "\xa4\x80\x80\x80\x80\x80\x80\x80\x80"
	for _, text := range []string{"", "\x80", "\x80\x00", nine, nine + "\x00", nine + "\x02", nine + "\x81\x00", nine + "\x81\x01"} {
		func() {
			defer func() {
				if f, ok := recover().(*Failure); !ok || f.Status != "CORRUPT" {
					t.Errorf("%x is not refused", text)
				}
			}()
			(&cursor{[]byte(text)}).varint()
		}()
	}
}
