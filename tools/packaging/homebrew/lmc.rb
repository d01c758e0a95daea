# The formula for Homebrew: brew install --build-from-source ./lmc.rb
class Lmc < Formula
  desc "Lossless codec for tensors and checkpoints of language models"
  homepage "REPOSITORY"
  url "REPOSITORY/releases/download/v1.0.0/lmc-1.0.0.tar.gz"
  sha256 "SHA256" # of SHA256SUMS
  license "MIT"

  depends_on "jansson"

  def install
    system "make", "install", "PREFIX=#{prefix}"
  end

  test do
    (testpath/"model").mkpath
    (testpath/"model/weights").write "0123456789abcdef" * 10000
    system bin/"lmc", "model"
    system bin/"lmc", "-d", "-o", "again", "model.lmc"
    system "cmp", "model/weights", "again/weights"
    (testpath/"x.c").write <<~C
      #define LMC_IMPLEMENTATION
      #include <lmc.h>
      int main(void) { return lmc_dtype_find("BF16") != LMC_BF16; }
    C
    system ENV.cc, "x.c", "-I#{include}", "-o", "x"
    system "./x"
  end
end
