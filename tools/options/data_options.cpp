// SPDX-License-Identifier: Apache-2.0
#include "options/data_options.hpp"

namespace qk::tool {

void add_data(option_table& verb, data_settings& data, bool inputs_required) {
    verb.section("Data");
    verb.add_option("--inputs", data.inputs,
                    "data: FILE or INPUT=FILE (.npy, .npz, .pb, .png, .jpg, a folder of any); repeat it for several inputs")
        .required(inputs_required)
        .one_each()
        .type_name("[INPUT=]FILE")
        .common()
        .reads();
    verb.add_option("--labels", data.labels,
                    "class of each sample, .npy of integers; or the folder of images whose sub-folders are the classes")
        .type_name("FILE")
        .common()
        .reads();
    verb.add_option(
            "--preprocess", data.preprocess,
            "for example layout=nhwc,channels=bgr,scale=1,mean=104:117:123,std=1:1:1: (x * scale - mean) / std by channel; resize=HxW for "
            "images")
        .type_name("SPEC");
    verb.add_option("--calibration", data.calibration, "data to choose ranges from, like --inputs; the inputs if not given")
        .one_each()
        .type_name("[INPUT=]FILE")
        .common()
        .reads();
    verb.add_option("--samples", data.samples, "use exactly the first N samples of the inputs; all if not given")
        .type_name("N")
        .at_least(1, "leave --samples out to use all of them");
    verb.add_option("--threads", data.threads, "one for each core if not given; results do not depend on it")
        .type_name("T")
        .between(1, 1024, "leave --threads out for one for each core");
    verb.section("");
}

}  // namespace qk::tool
