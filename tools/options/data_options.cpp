// SPDX-License-Identifier: Apache-2.0
#include "options/data_options.hpp"

#include "support/checkpoints.hpp"

namespace qk::tool {

void add_data(option_table& verb, data_settings& data, bool inputs_required, bool calibrates) {
    verb.section("Data");
    verb.add_option("--inputs", data.inputs.files,
                    "data: FILE or INPUT=FILE (.npy, .npz, .pb, .png, .jpg, a folder of any; a list with commas); repeat it for several "
                    "inputs; sequences "
                    "may differ in length, a sample a file")
        .required(inputs_required)
        .unless(is_checkpoint)
        .one_each()
        .type_name("[INPUT=]FILE")
        .common()
        .reads();
    verb.add_option("--labels", data.labels.file,
                    "class of each sample, or of each position ([N,S]), .npy of whole numbers from 0; or the folder of images whose "
                    "sub-folders are "
                    "the classes")
        .type_name("FILE")
        .common()
        .reads();
    verb.add_option("--ignore-label", data.positions.ignore_label,
                    "samples and positions with this label count in no metric (default -100); any other label that is no class is an error")
        .type_name("N");
    verb.add_option(
            "--preprocess", data.preprocess,
            "for example layout=nhwc,channels=bgr,scale=1,mean=104:117:123,std=1:1:1: (x * scale - mean) / std by channel; resize=HxW for "
            "images")
        .type_name("SPEC");
    if (calibrates)
        verb.add_option("--calibration", data.calibration.files, "data to choose ranges from, like --inputs; the inputs if not given")
            .one_each()
            .type_name("[INPUT=]FILE")
            .common()
            .reads();
    verb.add_option("--samples", data.samples, "use exactly the first N samples of the inputs; all if not given")
        .type_name("N")
        .at_least(1, "leave --samples out to use all of them");
    verb.add_option("--batch-axis", data.batch_axis,
                    "the axis that samples stand along; none: the whole input, or each file of a folder, is one sample; if not given, the "
                    "graph says whether rows of axis 0 are samples")
        .type_name("N|none");
    verb.add_flag("--skip-bad-samples", data.skip_bad_samples, "leave out samples that hold NaN, with their labels, instead of stopping");
    verb.add_option("--threads", data.threads, "one for each core if not given; results do not depend on it")
        .type_name("T")
        .between(1, 1024, "leave --threads out for one for each core")
        .also_for(input_kind::checkpoint);
    verb.section("");
}

void add_positions(option_table& verb, data_settings& data) {
    verb.section("Measure");
    verb.add_option("--mask", data.positions.mask, "the model's input that is 0 where a position is padding: such positions never count")
        .type_name("INPUT");
    verb.add_flag("--next-token", data.positions.next_token,
                  "measure each position against the label of the next one; without --labels against the model's own input of token ids");
    verb.add_flag("--per-position", data.positions.per_position, "cosine and l2 of each position instead of each sequence");
    verb.section("");
}

}  // namespace qk::tool
