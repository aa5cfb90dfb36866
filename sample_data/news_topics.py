"""Words and sentence patterns for nine news topics, written for this project.

Each topic has four lists of words (actors, actions, objects, places) and patterns of its own, for headlines and for
sentences of a body. A pattern names its slots in braces: `{actor}`, `{action}`, `{object}` and `{place}` are filled
from the topic's words, the rest (`{city}`, `{date}`, ...) from the neutral words in `news_sentences`. An action is a
whole predicate, so that "actor + action" is a sentence; an object is a noun phrase. Nothing here names a person or a
brand.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Topic:
    """One news topic: its label, other names for it, its words, and its own patterns."""

    name: str
    synonyms: tuple[str, ...]
    actor: tuple[str, ...]
    action: tuple[str, ...]
    object: tuple[str, ...]
    place: tuple[str, ...]
    headlines: tuple[str, ...]
    bodies: tuple[str, ...]

    def words(self, slot: str) -> tuple[str, ...]:
        """Return the words that fill a slot: actor, action, object or place."""
        return {"actor": self.actor, "action": self.action, "object": self.object, "place": self.place}[slot]


def _words(text: str) -> tuple[str, ...]:
    return tuple(word for line in text.split() for word in line.split("、") if word)


def _lines(text: str) -> tuple[str, ...]:
    return tuple(line.strip() for line in text.splitlines() if line.strip())


_CULTURE = Topic(
    name="文化",
    synonyms=("传统文化", "文艺", "文博"),
    actor=_words("""博物馆、文物修复师、非遗传承人、书法家、国画名家、青年作家、诗人、考古队、文物专家、民俗学者、
    古籍修复师、剪纸艺人、昆曲名角、图书馆馆长、汉服爱好者、皮影艺人"""),
    action=_words("""开讲古诗词、获颁文学奖、出版新诗集、修复千年古画、办起水墨展、收徒传艺、公布考古新发现、复原失传技艺、
    捐赠珍贵手稿、推出文创新品、走进乡村祠堂、守护古城墙、整理地方志、举办读书会、临摹敦煌壁画"""),
    object=_words("""青铜器、古籍善本、宋代瓷器、敦煌壁画、甲骨文、非遗技艺、长篇小说、古诗词、水墨画展、皮影戏、唐三彩、
    民间剪纸、战国竹简、书法真迹、庙会民俗、古建筑群、茶道礼仪、文创礼盒"""),
    place=_words("""博物馆、美术馆、古镇、图书馆、遗址公园、孔庙、石窟、古戏台、文化馆、书院、非遗工坊、古玩市场"""),
    headlines=_lines("""
        {object}特展开幕，{number}件文物首次亮相
        千年文脉今犹在：{actor}{action}
        {place}夜游上新，{object}“活”了起来
        {actor}：让{object}走进寻常百姓家
        一笔一画皆传承，{actor}与{object}
        探秘{city}{place}，读懂{object}里的历史
        文化遗产日，{actor}{action}
        {object}申遗之路走过{number}年"""),
    bodies=_lines("""
        {actor}介绍，这批{object}的年代可以追溯到{number}多年前，纹饰和题记都保存完好。
        展厅里，{object}静静陈列，参观者驻足细看，不时低声念出上面的铭文。
        “传统不是老古董，”{actor}一边研墨一边说，“{object}也能讲给今天的人听。”
        {place}的展览分为{number}个单元，从历史沿革讲到民间工艺，{object}是其中的重头戏。
        多年来，{actor}坚持{action}，为地方文脉留下了一份珍贵的档案。
        当地把{object}列入保护名录，并请{actor}走进校门口的老街讲授技艺。
        入夜之后，{place}灯影摇曳，说书人讲起{object}的来历，听众久久不愿离去。"""),
)

_SPORTS = Topic(
    name="体育",
    synonyms=("运动", "赛事", "体坛"),
    actor=_words("""女排姑娘、国足主帅、乒乓球名将、游泳小将、短跑选手、马拉松跑者、NBA球队、CBA新秀、羽毛球双打组合、
    体操队、守门员、射击冠军、滑雪运动员、网球一姐、裁判组、中超球队"""),
    action=_words("""逆转夺冠、刷新全国纪录、三分绝杀对手、连赢五局晋级、点球大战出局、伤愈复出首秀、备战世锦赛、
    横扫卫冕冠军、决赛摘银、公布集训名单、主场战平劲旅、打进制胜一球、收获首枚金牌、提前锁定四强、宣布退役"""),
    object=_words("""世界杯预选赛、奥运金牌、半程马拉松、联赛积分榜、常规赛季、男子百米决赛、接力项目、点球大战、
    全运会、季后赛、亚洲杯、女子双打、大满贯赛事、冬季两项、主场首胜、篮板球、帽子戏法、世界排名"""),
    place=_words("""体育场、奥体中心、游泳馆、足球场、训练基地、滑雪场、冰球馆、田径场、网球中心、篮球馆、赛道终点、
    更衣室"""),
    headlines=_lines("""
        {small}比0！{actor}{action}
        {object}战罢：{actor}笑到最后
        {actor}{action}，赛后泪洒{place}
        {object}抽签揭晓，{actor}进入死亡之组
        加时赛惊险过关，{actor}挺进{object}
        伤停补时破门！{actor}{action}
        全场{number}分，{actor}拿下{object}
        {object}开赛在即，{actor}抵达{city}热身"""),
    bodies=_lines("""
        上半场双方互交白卷，下半场第{number}分钟，{actor}抓住机会破门得分。
        赛后发布会上，主教练表示，{actor}在{object}中的防守比预想的更坚决。
        随着终场哨声响起，{place}的看台一片欢腾，{actor}{action}。
        {object}下一轮，{actor}将迎战小组头名，胜者晋级四强。
        技术统计显示，{actor}全场命中率达到{percent}，失误只有{small}次。
        {actor}在{place}完成了最后一堂训练课，队医说体能状况良好。
        这是{actor}连续第{small}年站上{object}的领奖台。"""),
)

_ENTERTAINMENT = Topic(
    name="娱乐",
    synonyms=("影视", "明星", "娱乐圈"),
    actor=_words("""当红女星、新晋影帝、喜剧演员、选秀歌手、偶像男团、知名导演、综艺主持人、流量小生、金牌编剧、
    摇滚乐队、视后、脱口秀艺人、经纪公司、配音演员、人气女团、老戏骨"""),
    action=_words("""官宣恋情、新片杀青、晒出红毯造型、开启巡回演唱会、回应绯闻、空降热搜第一、加盟真人秀、发布新专辑、
    客串古装剧、斩获最佳女主角、曝光定妆照、深夜晒自拍、与粉丝互动、首演音乐剧、宣布暂别荧幕"""),
    object=_words("""贺岁片、古装偶像剧、真人秀综艺、电影票房、MV花絮、演唱会门票、红毯造型、粉丝见面会、悬疑网剧、
    颁奖典礼、片尾彩蛋、主题曲、选秀决赛、甜宠剧、绯闻八卦、首映礼、喜剧小品、电影预告片"""),
    place=_words("""片场、影视城、首映礼现场、录音棚、红毯、演播厅、电影院、跨年晚会、音乐节、后台化妆间、
    KTV、粉丝应援站"""),
    headlines=_lines("""
        {object}定档{month}月，{actor}领衔主演
        {actor}{action}，网友：太甜了
        首日票房破{small}亿，{object}成黑马
        {actor}素颜现身{place}，状态惊艳
        {object}收视登顶，{actor}演技获赞
        嗨翻全场！{actor}{action}
        {actor}新歌上线，{object}单曲循环
        {actor}被拍到出入{place}，工作室辟谣"""),
    bodies=_lines("""
        影片讲述了一段错位的爱情，{actor}在片中首次挑战反派，{object}花絮随之曝光。
        {actor}身穿银色长裙亮相{place}，粉丝的尖叫声此起彼伏。
        工作室随后发表声明，否认了{actor}的恋情，并希望大家多关注{object}。
        据片方透露，{object}目前已杀青，{actor}的戏份占到{percent}。
        话题登上热搜后，{actor}在直播里唱起新歌，弹幕刷屏不断。
        导演笑称，{actor}在{place}里常常笑场，一个镜头拍了{number}遍。
        {object}播出当晚，收视率一路走高，{actor}的名场面被反复剪辑。"""),
)

_FINANCE = Topic(
    name="财经",
    synonyms=("经济", "金融", "股市"),
    actor=_words("""央行、证监会、基金经理、上市公司、私募机构、券商分析师、外汇交易员、商业银行、保险公司、
    股民老张、首席经济学家、投资银行、创业板新股、信托公司、国债交易商、会计师事务所"""),
    action=_words("""下调存款利率、发布年度财报、宣布回购股份、增持蓝筹股、提示信用风险、上调盈利预期、完成IPO定价、
    减持套现、开盘涨停、调整印花税、发行专项债券、披露业绩预告、净利润翻番、公布分红方案、抛售美债"""),
    object=_words("""A股大盘、人民币汇率、存款准备金率、GDP增速、国际油价、黄金期货、可转债、理财产品、公募基金、
    通货膨胀、贸易顺差、北向资金、贷款利率、创业板指、企业债、消费者物价指数、季度净利润、跨境支付"""),
    place=_words("""证券交易所、营业部、期货市场、银行网点、陆家嘴、股东大会、自贸区、外汇市场、结算中心、债券市场、
    金融街、路演现场"""),
    headlines=_lines("""
        {object}收涨{percent}，两市成交破万亿
        {actor}{action}，股价应声走高
        {object}跌破{number}点，{actor}紧急回应
        早盘：{object}震荡走低，{actor}称无需恐慌
        {month}月{object}数据出炉，同比增长{percent}
        {actor}：下半年{object}有望企稳
        利好来了！{actor}{action}
        {object}单日成交{number}亿元，创年内新高"""),
    bodies=_lines("""
        截至收盘，{object}报{number}点，涨幅{percent}，成交额较前一日放大。
        {actor}在研报中指出，{object}仍处在估值的低位，中长期配置价值显现。
        数据显示，前三季度{object}同比增长{percent}，高于市场预期。
        受此消息影响，{actor}{action}，板块内多只个股跟涨。
        分析人士认为，{object}的走势取决于流动性，投资者应注意风险。
        {actor}表示，将通过逆回购等工具保持资金面平稳，{object}不会大起大落。
        公告称，公司拟以{number}亿元收购资产，{actor}对此出具了意见。"""),
)

_HOME = Topic(
    name="家居",
    synonyms=("家装", "装修", "家具"),
    actor=_words("""家装设计师、装修业主、木工师傅、家具厂、收纳达人、软装搭配师、橱柜商家、瓷砖导购、油漆工、
    整理师、卫浴品牌、家纺店主、灯具店、主妇陈姐、监理师傅、地板商"""),
    action=_words("""改造老厨房、打通客厅阳台、晒出新房装修账单、定制整屋橱柜、测评乳胶漆、教你清理油烟机、
    挑选实木地板、重铺卫生间瓷砖、搭配北欧风沙发、巧用角落收纳、贴好墙纸、换掉旧窗帘、拆掉隔断墙、选购床垫、
    安装智能马桶"""),
    object=_words("""布艺沙发、开放式厨房、实木餐桌、衣帽间、榻榻米、乳胶漆、地暖铺设、卫浴五金、飘窗改造、落地灯、
    收纳柜、窗帘布料、玄关鞋柜、四件套、吊顶设计、床垫硬度、瓷砖美缝、小户型布局"""),
    place=_words("""客厅、阳台、卧室、儿童房、建材城、家具卖场、样板间、厨房、卫生间、书房、玄关、装修工地"""),
    headlines=_lines("""
        {small}0平小户型，{actor}{action}
        {object}怎么选？{actor}给你支招
        {place}这样布置，{object}颜值翻倍
        装修避坑：{object}的{small}个误区
        {actor}{action}，住着真舒服
        不敲墙也能扩容，{object}改出大{place}
        甲醛超标怎么办？{actor}谈{object}
        {object}材质大比拼，耐脏又好打理"""),
    bodies=_lines("""
        房子建筑面积{small}0平米，{actor}把{place}和餐厅连成一体，采光一下子好了许多。
        选购{object}时，先看板材的环保等级，再摸一摸封边是否平整。
        {place}铺的是浅色木纹砖，搭配{object}，显得温馨又耐看。
        {actor}提醒，{object}完工后要通风三个月，并请专业机构检测甲醛。
        考虑到家里有老人和孩子，{actor}在{place}加装了扶手和感应夜灯。
        整套{object}花费{number}元，比预算节省了{percent}。
        清洁{object}时不要用钢丝球，软布蘸温水擦拭即可。"""),
)

_CARS = Topic(
    name="汽车",
    synonyms=("车市", "轿车", "车展"),
    actor=_words("""新能源车企、合资品牌、4S店、试驾编辑、SUV车主、自主品牌轿车、车展模特、汽车销售顾问、电动皮卡、
    维修技师、二手车商、赛车工程师、豪华轿跑、MPV新款、充电桩运营商、自驾车友"""),
    action=_words("""公布百公里油耗、召回问题车辆、开启新车预售、终端优惠三万元、实测续航里程、搭载混动系统、
    推出七座版、换装2.0T发动机、更换刹车片、升级自动变速箱、完成碰撞测试、交付首批车主、下线第百万辆整车、
    冬季保养养护、更新前脸格栅"""),
    object=_words("""纯电轿车、涡轮增压发动机、紧凑型SUV、双离合变速箱、车载冰箱、快充电池、底盘悬挂、全景天窗、
    油电混动、二手车行情、轮胎花纹、倒车影像、车险续保、越野改装、新车谍照、驾驶座椅、百公里加速、后备箱空间"""),
    place=_words("""车展、4S店、试驾场、整车工厂、高速服务区、充电站、赛车场、修理厂、二手车市场、停车场、展台、
    碰撞实验室"""),
    headlines=_lines("""
        售1{small}.98万元起，{object}正式上市
        试驾{object}：动力够用，油耗惊喜
        {actor}{action}，最快{month}月到店
        {object}对比{object2}，该买谁？
        {city}车展：{actor}{action}
        {number}万公里长测：{object}表现如何
        {actor}销量增长{percent}，{object}是主力
        买车必看！{object}的{small}个细节"""),
    bodies=_lines("""
        新车轴距达到2{small}50毫米，{object}为全系标配，高配还有座椅加热。
        动力方面，{actor}搭载1.5T发动机，匹配{object}，最大功率2{small}0马力。
        {actor}称，目前{object}提车周期约为{small}周，颜色有{small}种可选。
        在{place}的坡道上，{object}的表现相当稳健，方向盘回馈清晰。
        内饰采用环抱式中控，{object}的做工比老款进步明显。
        与同级车型相比，{object}的油耗低了{percent}，车主口碑不错。
        厂家宣布召回{number}辆，原因是{object}存在隐患，{actor}将免费检修。"""),
)

_EDUCATION = Topic(
    name="教育",
    synonyms=("学校", "校园", "教学"),
    actor=_words("""高三学生、小学班主任、大学校长、高考状元、乡村教师、教育局、考研党、留学顾问、幼儿园园长、
    英语老师、家长委员会、毕业生、招生办、博士生导师、支教志愿者、数学教研组"""),
    action=_words("""公布录取分数线、布置寒假作业、开设劳动课、扩招研究生、冲刺期末复习、发放助学金、取消周末补课、
    填报高考志愿、参加教师资格考试、批改作文到深夜、调整中考科目、举行开学典礼、推行课后托管、给学生家访、
    申请国外名校"""),
    object=_words("""高考作文、考研英语、中考体检、四六级成绩、课堂纪律、奖学金、寒假作业、义务教育、自主招生、
    双语教学、学区划片、毕业论文、留学签证、教材改版、课后托管、口算练习、职业教育、家庭教育"""),
    place=_words("""教室、大学校园、重点中学、考场、幼儿园、自习室、乡村小学、职业学院、招生咨询会、学生宿舍、操场边的课堂、
    培训班"""),
    headlines=_lines("""
        {year}年{object}时间确定，{actor}请注意
        {object}放榜：{actor}{action}
        {actor}：别让{object}压垮孩子
        {number}万考生走进{place}，{object}开考
        {object}改革落地，{actor}怎么看
        {actor}{action}，家长点赞
        开学第一课：{actor}走进{place}
        提分有方！{actor}支招{object}"""),
    bodies=_lines("""
        今年全市共有{number}名考生报名，{object}将于{month}月进行，准考证可提前打印。
        班主任告诉记者，{object}的难度与去年持平，多数学生能够按时交卷。
        “孩子写完作业已经十点了，”一位家长说，“希望{object}能减轻些负担。”
        {actor}在{place}里支起黑板，一笔一画地教孩子们认字。
        根据招生章程，{object}占总成绩的{percent}，录取结果将分批公布。
        {actor}建议，复习{object}要回到课本，把错题本再看一遍。
        该校把{object}纳入课程表，每周{small}节，由{actor}任教。"""),
)

_TECHNOLOGY = Topic(
    name="科技",
    synonyms=("科学技术", "互联网", "数码"),
    actor=_words("""芯片公司、AI实验室、程序员、航天工程师、手机厂商、量子物理学家、云计算平台、开源社区、机器人团队、
    网络安全专家、软件开发者、卫星测控中心、VR创业者、算法工程师、搜索引擎、生物技术公司"""),
    action=_words("""发布大语言模型、开源训练代码、突破7纳米工艺、修补安全漏洞、推送系统更新、点亮5G基站、演示人形机器人、
    发射遥感卫星、研制量子计算机、上线语音助手、公布专利数据、升级操作系统、测试脑机接口、压缩神经网络、
    发现新型超导材料"""),
    object=_words("""人工智能、折叠屏手机、量子芯片、5G网络、云服务器、智能手表、操作系统内核、深度学习算法、
    卫星互联网、基因测序、可穿戴设备、光刻机、数据加密、App更新、3D打印、虚拟现实头盔、固态硬盘、语音识别"""),
    place=_words("""实验室、数据中心、高新区、开发者大会、航天发射场、机房、科技馆、代码仓库、超算中心、创客空间、
    芯片产线、黑客马拉松"""),
    headlines=_lines("""
        {actor}{action}，性能提升{percent}
        {object}新品发布，起步内存{small}GB
        算力翻{small}倍！{actor}{action}
        {object}漏洞曝光，{actor}连夜打补丁
        从{place}到市场，{object}还差几步
        {object}评测：续航和散热都有惊喜
        {actor}：{object}正在改变编程方式
        {object}开放API，开发者可免费试用"""),
    bodies=_lines("""
        研究团队用{number}块GPU训练了模型，{object}的准确率提升到{percent}。
        该论文发表在学术期刊上，作者认为{object}为后续实验打开了新思路。
        {actor}在{place}演示了{object}，从点击图标到完成运算不到{small}秒。
        新机搭载自研处理器，屏幕刷新率更高，{object}的功耗下降了{percent}。
        {actor}提醒用户尽快升级到最新版本，以免{object}的数据被窃取。
        代码托管平台上，{object}项目的关注者已超过{number}人。
        卫星入轨后，{actor}将开展{object}的在轨测试，为期{small}个月。"""),
)

_MILITARY = Topic(
    name="军事",
    synonyms=("国防", "军队", "军情"),
    actor=_words("""海军编队、空军飞行员、特种部队、陆军某旅、导弹连、潜艇官兵、边防哨所、维和部队、女子炮班、伞兵、
    护航舰艇、武警支队、舰载机飞行员、防空雷达站、军校学员、退役老兵"""),
    action=_words("""展开实弹演习、完成远海训练、夜间紧急升空、列装新型坦克、赴亚丁湾护航、组织联合军演、试射防空导弹、
    开展战术侦察、跨昼夜强行军、武装泅渡、击落模拟靶机、进行反潜演练、举行授衔仪式、抢占滩头阵地、执行战备巡逻"""),
    object=_words("""航空母舰、隐形战斗机、主战坦克、防空导弹、驱逐舰、武装直升机、无人侦察机、两栖登陆舰、核潜艇、
    狙击步枪、战略轰炸机、预警机、火箭炮、装甲车、实弹射击、电子对抗、海上阅兵、防弹衣"""),
    place=_words("""军港、靶场、演训场、边境哨卡、空军基地、甲板、指挥所、训练营、雷达阵地、战壕、军营、海防前线"""),
    headlines=_lines("""
        {actor}{action}，现场炮火轰鸣
        {object}首次公开，火力配置曝光
        沙场点兵：{actor}{action}
        {object}与{object2}谁更强？
        战鹰呼啸！{actor}{action}
        {actor}在{place}连续作战{number}小时
        {object}入列服役，战斗力再升级
        硝烟散去，{actor}检讨{object}得失"""),
    bodies=_lines("""
        凌晨{small}时，警报骤响，{actor}迅速奔向{place}，数分钟内完成战斗准备。
        演习分为侦察、突击和撤收三个阶段，{object}首次参加实兵对抗。
        指挥员一声令下，{object}向{number}公里外的目标齐射，全部命中。
        {actor}官兵顶着风浪在{place}坚守，{action}。
        军事专家分析，{object}的隐身性能和航程都比上一代明显提高。
        新兵下连后，{actor}为他们讲解{object}的操作要领。
        发言人说，{actor}{action}属于年度例行安排，不针对任何第三方。"""),
)

TOPICS: tuple[Topic, ...] = (
    _CULTURE,
    _SPORTS,
    _ENTERTAINMENT,
    _FINANCE,
    _HOME,
    _CARS,
    _EDUCATION,
    _TECHNOLOGY,
    _MILITARY,
)
